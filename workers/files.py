"""Stored files on this host: fetched by hash, verified, kept while there is room."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings

from webapp.artifacts.models import Blob
from webapp.artifacts.services import open_blob
from workers import trial_accounts

CHUNK = 2**20
#: What was used so lately may be about to be opened by a trial, and half a file may still be growing
#: (seconds).
SPARED_SECONDS = 3600.0


class Unavailable(Exception):
    """The lab cannot hand the file out now: whoever uploaded it did nothing wrong, so it is tried again."""


class Damaged(Unavailable):
    """The storage holds other bytes than the hash says."""


def local(blob: Blob) -> Path:
    """The path of a verified copy; fetched on first use. ``Unavailable`` where the lab does not have it."""
    cache = Path(settings.BLOB_CACHE)
    path = cache / blob.sha256[:2] / blob.sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(cache):
        kept = _touch(path, blob.size)
    if not kept:
        _fetch(blob, path)
        with _lock(cache):
            trim(cache, settings.BLOB_CACHE_BYTES)
    trial_accounts.lend(path)
    return path


def trim(cache: Path, most: int) -> None:
    """Remove the least recently used until ``most`` bytes are left; what was used a while ago at most stays
    anyway.
    """
    used = sorted((entry.stat().st_mtime, entry) for entry in cache.glob("??/*"))
    held = sum(entry.stat().st_size for _, entry in used)
    for last_use, entry in used:
        abandoned = entry.suffix == ".part"
        if last_use > time.time() - SPARED_SECONDS or not (held > most or abandoned):
            continue
        held -= entry.stat().st_size
        entry.unlink()


def _touch(path: Path, size: int) -> bool:
    """Whether the whole file is there; its time of change then says when it was last used."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    os.utime(path)
    return True


def _fetch(blob: Blob, path: Path) -> None:
    """Copy aside, verify, rename: under its hash a file is whole, whenever this process dies."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as aside:
        try:
            found = _copy(blob, aside)
            if found != blob.sha256:
                raise Damaged(f"the stored file {blob.sha256} has the hash {found}")
            Path(aside.name).replace(path)
        except BaseException:
            Path(aside.name).unlink(missing_ok=True)
            raise


def _copy(blob: Blob, to: IO[bytes]) -> str:
    """The SHA-256 of what was copied."""
    digest = hashlib.sha256()
    try:
        with open_blob(blob) as source:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                to.write(chunk)
    except FileNotFoundError:
        raise Unavailable(f"the lab's storage has no file {blob.sha256}") from None
    to.flush()
    return digest.hexdigest()


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Against the other slots and workers of this host, so that none removes what another has just found."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
