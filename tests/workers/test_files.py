"""Stored files on a worker's host: fetched once, verified, whole whenever something dies, trimmed by last
use.
"""

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

from webapp.artifacts.models import Blob
from workers import files

LONG_AGO = time.time() - 2 * files.SPARED_SECONDS


@pytest.fixture(autouse=True)
def folders(settings, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.BLOB_CACHE = tmp_path / "cache"
    settings.BLOB_CACHE_BYTES = 100


def stored(content: bytes) -> Blob:
    """A blob in the storage; it needs no row in the database to be fetched."""
    blob = Blob(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    default_storage.save(blob.path, ContentFile(content))
    return blob


def cached(tmp_path: Path) -> set[bytes]:
    return {path.read_bytes() for path in (tmp_path / "cache").glob("??/*")}


def used(path: Path, when: float) -> None:
    os.utime(path, (when, when))


def test_a_file_is_fetched_once_and_lies_under_its_hash(tmp_path: Path) -> None:
    blob = stored(b"a trace")
    path = files.local(blob)
    assert path == tmp_path / "cache" / blob.sha256[:2] / blob.sha256
    default_storage.delete(blob.path)
    assert files.local(blob).read_bytes() == b"a trace"


def test_wrong_bytes_are_refused_and_not_kept(tmp_path: Path) -> None:
    blob = stored(b"a trace")
    default_storage.save(blob.path, ContentFile(b"A TRACE"))
    wrong = hashlib.sha256(b"A TRACE").hexdigest()
    with pytest.raises(files.Damaged, match=f"the stored file {blob.sha256} has the hash {wrong}"):
        files.local(blob)
    assert cached(tmp_path) == set()
    default_storage.save(blob.path, ContentFile(b"a trace"))
    assert files.local(blob).read_bytes() == b"a trace"


def test_a_file_that_the_storage_lost_is_no_fault_of_the_file(tmp_path: Path) -> None:
    blob = stored(b"a trace")
    default_storage.delete(blob.path)
    with pytest.raises(files.Unavailable, match=f"^the lab's storage has no file {blob.sha256}$"):
        files.local(blob)
    assert cached(tmp_path) == set()


FETCH_AND_DIE = """
import os, sys
import django
django.setup()
from webapp.artifacts.models import Blob
from workers import files
files.CHUNK = 10
class Storage:
    def __init__(self, file): self.file, self.read_once = file, False
    def __enter__(self): return self
    def __exit__(self, *_): self.file.close()
    def read(self, size):
        if self.read_once: os.kill(os.getpid(), 9)
        self.read_once = True
        return self.file.read(size)
whole = files.open_blob
files.open_blob = lambda blob: Storage(whole(blob))
files.local(Blob(sha256=sys.argv[1], size=int(sys.argv[2])))
"""


def test_a_worker_killed_while_it_fetches_leaves_nothing_under_the_hash(settings, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    content = b"0123456789 and the rest of it"
    blob = stored(content)
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "webapp.settings.test", "LAB_VAR": str(tmp_path)}
    environment["BLOB_CACHE"] = str(tmp_path / "cache")
    killed = subprocess.run(
        [sys.executable, "-c", FETCH_AND_DIE, blob.sha256, str(blob.size)], env=environment
    )
    assert killed.returncode == -9
    [part] = (tmp_path / "cache").glob("??/*")
    assert part.suffix == ".part"
    assert files.local(blob).read_bytes() == content
    used(part, LONG_AGO)
    files.trim(tmp_path / "cache", most=100)
    assert cached(tmp_path) == {content}


def test_half_a_file_under_its_hash_is_fetched_again(tmp_path: Path) -> None:
    blob = stored(b"a trace")
    files.local(blob).write_bytes(b"a t")
    assert files.local(blob).read_bytes() == b"a trace"


def test_beyond_the_cap_the_least_recently_used_goes_first(settings, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings.BLOB_CACHE_BYTES = 120
    blobs = [stored(letter * 40) for letter in (b"a", b"b", b"c")]
    for age, blob in enumerate(blobs):
        used(files.local(blob), LONG_AGO - age)
    files.trim(tmp_path / "cache", most=100)
    assert cached(tmp_path) == {b"a" * 40, b"b" * 40}
    # Used again, the second is younger than the first.
    files.local(blobs[1])
    files.trim(tmp_path / "cache", most=50)
    assert cached(tmp_path) == {b"b" * 40}


def test_fetching_makes_room_by_itself(tmp_path: Path) -> None:
    for letter in (b"a", b"b"):
        used(files.local(stored(letter * 40)), LONG_AGO)
    files.local(stored(b"new" * 10))
    assert len(cached(tmp_path)) == 2
    assert b"new" * 10 in cached(tmp_path)


def test_what_a_trial_may_be_about_to_open_stays_beyond_the_cap(tmp_path: Path) -> None:
    blobs = [stored(letter * 60) for letter in (b"a", b"b")]
    assert all(files.local(blob).exists() for blob in blobs)
    assert len(cached(tmp_path)) == 2
