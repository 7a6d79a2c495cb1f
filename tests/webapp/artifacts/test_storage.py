"""The folder of uploads: under a hash there is the whole file or nothing, whatever dies in between."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import TemporaryUploadedFile

from tests.webapp.cast import Cast
from webapp.artifacts.models import Blob
from webapp.artifacts.services import store_upload
from webapp.artifacts.storage import ABANDONED_SECONDS

SAVE_AND_DIE = """
import os, sys
import django
django.setup()
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
class Dying(ContentFile):
    def chunks(self, chunk_size=None):
        yield b"half"
        os.kill(os.getpid(), 9)
default_storage.save(sys.argv[1], Dying(b"half and half"))
"""


def kept(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in tmp_path.glob("files/**/*") if path.is_file()}


def killed_while_saving(name: str, var: Path) -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "webapp.settings.test", "LAB_VAR": str(var)}
    ended = subprocess.run([sys.executable, "-c", SAVE_AND_DIE, name], env=environment)
    assert ended.returncode == -9


def test_a_server_killed_while_it_stores_leaves_nothing_under_the_hash(cast: Cast, tmp_path: Path) -> None:
    content = b"half and half"
    blob = Blob(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    killed_while_saving(blob.path, tmp_path)
    assert not default_storage.exists(blob.path)
    assert all(name.endswith(".part") for name in kept(tmp_path))
    default_storage.save(blob.path, ContentFile(content))
    assert default_storage.open(blob.path).read() == content


def test_an_upload_stores_the_whole_file_once(cast: Cast, tmp_path: Path) -> None:
    first = store_upload(cast.project, cast.max, "a.csv", ContentFile(b"job_id\n1\n"))
    second = store_upload(cast.foreign, cast.sly, "b.csv", ContentFile(b"job_id\n1\n"))
    assert first.blob == second.blob
    assert first.blob is not None
    assert kept(tmp_path) == {first.blob.sha256: b"job_id\n1\n"}


def test_a_large_upload_is_moved_not_copied(cast: Cast, tmp_path: Path, settings) -> None:  # type: ignore[no-untyped-def]
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    large = TemporaryUploadedFile("trace.json", "application/json", 7, None)
    large.write(b"[1,2,3]")
    large.seek(0)
    source = Path(large.temporary_file_path())
    made = store_upload(cast.project, cast.max, "trace.json", large)
    assert made.blob is not None
    assert kept(tmp_path) == {made.blob.sha256: b"[1,2,3]"}
    assert not source.exists()
    large.close()


def test_a_write_that_fails_clears_up_after_itself(tmp_path: Path) -> None:
    class Broken(ContentFile):
        def chunks(self, chunk_size=None):  # type: ignore[no-untyped-def]
            yield b"half"
            raise OSError("the client went away")

    with pytest.raises(OSError, match="went away"):
        default_storage.save("blobs/aa/name", Broken(b"half and half"))
    assert kept(tmp_path) == {}


def test_what_a_dead_server_left_is_removed_a_day_later(tmp_path: Path) -> None:
    killed_while_saving("blobs/aa/name", tmp_path)
    [part] = tmp_path.glob("files/blobs/aa/*")
    default_storage.save("blobs/aa/other", ContentFile(b"other"))
    assert part.exists()
    os.utime(part, (0, time.time() - ABANDONED_SECONDS - 1))
    default_storage.save("blobs/aa/third", ContentFile(b"third"))
    assert kept(tmp_path) == {"other": b"other", "third": b"third"}
