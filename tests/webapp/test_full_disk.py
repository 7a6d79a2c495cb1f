"""The disk of uploads is full: what is sent is refused with the time to try again, and leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings

from tests.small_disk import full, small_disk
from tests.webapp.artifacts.test_uploads import begin, send
from tests.webapp.cast import Cast, signed_in
from webapp.api.services import make_token
from webapp.artifacts.models import Artifact, Blob, Upload

pytestmark = pytest.mark.django_db(transaction=True)
CONTENT = b"submit,gpus,service\n" + b"0,1,60\n" * 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2**20) as made, override_settings(MEDIA_ROOT=made):
        yield made


def asking(client: Client) -> Client:
    client.raise_request_exception = False
    return client


def kept_files(disk: Path) -> list[Path]:
    return [path for path in disk.rglob("*") if path.is_file()]


def test_an_upload_is_refused_and_the_same_one_is_taken_once_there_is_room(cast: Cast, disk: Path) -> None:
    token = make_token(cast.red, cast.ada, "nightly", "member")[1]
    about = {"headers": {"authorization": f"Bearer {token}"}}

    def upload() -> Any:
        given = {"file": SimpleUploadedFile("jobs.csv", CONTENT)}
        return asking(Client()).post("/api/v1/artifacts?project=vision", given, **about)

    with full(disk):
        answer = upload()
        assert (answer.status_code, answer.get("Retry-After")) == (503, "5"), answer.content
        assert "nothing was stored" in answer.json()["detail"]
    assert (Artifact.objects.count(), Blob.objects.count(), kept_files(disk)) == (0, 0, [])
    assert upload().status_code == 201
    assert [path.name for path in kept_files(disk)] == [Blob.objects.get().sha256]


def test_a_chunk_that_found_no_room_is_sent_again_and_nothing_before_it(cast: Cast, disk: Path) -> None:
    client = asking(signed_in(cast.max))
    url = begin(client, cast, len(CONTENT))["Location"]
    half = len(CONTENT) // 2
    assert send(client, url, 0, CONTENT[:half]).status_code == 204
    with full(disk):
        assert send(client, url, half, CONTENT[half:]).status_code == 503
    there = int(client.head(url)["Upload-Offset"])
    assert there >= half
    assert send(client, url, there, CONTENT[there:]).status_code == 201
    assert Artifact.objects.get().blob.size == len(CONTENT)
    assert Upload.objects.get().artifact_id == Artifact.objects.get().pk
