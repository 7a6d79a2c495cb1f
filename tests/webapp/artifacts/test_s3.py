"""Files in an S3-compatible store by settings alone: a server of that protocol, the storage as deployed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from django.core.files.base import ContentFile

from tests.webapp.cast import Cast, signed_in
from tests.workers.crew import until
from webapp.artifacts.services import open_blob, store_upload
from workers import files
from workers.services import free_port

ASK = """
import json, sys
import webapp.settings.base as settings
sys.stdout.write(json.dumps(settings.FILES))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The address of a server with the empty bucket ``lab``."""
    port = free_port()
    with (tmp_path / "store.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: b"Running on" in (tmp_path / "store.log").read_bytes(), 120, "the store answers")
        client(address).create_bucket(Bucket="lab")
        yield address
    finally:
        server.kill()
        server.wait()


def client(address: str) -> Any:
    keys = {"aws_access_key_id": "lab", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=address, **keys)


def as_deployed(address: str) -> dict[str, Any]:
    """What the settings make of the variables of a deployment."""
    import json

    told = {
        "S3_BUCKET": "lab",
        "S3_ENDPOINT": address,
        "S3_ACCESS_KEY": "lab",
        "S3_SECRET_KEY": "secret",
        "S3_REGION": "us-east-1",
    }
    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=os.environ | told, capture_output=True, check=True
    )
    found: dict[str, Any] = json.loads(asked.stdout)
    return found


@pytest.mark.django_db
def test_uploads_and_results_live_in_the_bucket_and_a_lost_one_is_no_fault_of_the_upload(
    store: str,
    cast: Cast,
    settings,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    settings.STORAGES = {**settings.STORAGES, "default": as_deployed(store)}
    settings.BLOB_CACHE, content = tmp_path / "cache", b"submit,gpus,service\n0,1,60\n" * 1000
    made = store_upload(cast.project, cast.max, "jobs.csv", ContentFile(content))
    assert made.blob is not None
    listed = client(store).list_objects_v2(Bucket="lab")["Contents"]
    assert [(row["Key"], row["Size"]) for row in listed] == [(made.blob.path, len(content))]
    assert not (Path(settings.MEDIA_ROOT) / "blobs").exists()
    assert files.local(made.blob).read_bytes() == content
    with open_blob(made.blob) as stored:
        stored.seek(20)
        assert stored.read(7) == content[20:27]
    # The same bytes again are kept once; a download is what was uploaded.
    store_upload(cast.project, cast.max, "again.csv", ContentFile(content))
    assert client(store).list_objects_v2(Bucket="lab")["KeyCount"] == 1
    answer = signed_in(cast.vera).get(cast.url(f"artifacts/{made.pk}/download"))
    assert hashlib.sha256(b"".join(answer)).hexdigest() == made.blob.sha256
    client(store).delete_object(Bucket="lab", Key=made.blob.path)
    files.local(made.blob).unlink()
    with pytest.raises(files.Unavailable):
        files.local(made.blob)
