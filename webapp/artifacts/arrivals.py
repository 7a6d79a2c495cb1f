"""Files that joined hosts hand in, piece by piece under their hash: stored once all is there and is what it
claims to be.
"""

from __future__ import annotations

import fcntl
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage

from webapp.artifacts.models import Blob
from webapp.artifacts.services import sha256_of, store_file
from webapp.artifacts.uploads import KEPT, Refused, WrongOffset

SHA256 = re.compile(r"[0-9a-f]{64}")
#: Bytes of one piece, at most (``DATA_UPLOAD_MAX_MEMORY_SIZE`` lets no larger body in).
PIECE = 4 * 2**20


def find_stored(sha256: str) -> Blob | None:
    """The blob, where its bytes are really there."""
    found = Blob.objects.filter(pk=sha256).first()
    return found if found is not None and default_storage.exists(found.path) else None


def append(sha256: str, sender: str, offset: int, size: int, piece: bytes) -> Blob | None:
    """Add a piece; the last one makes the blob. ``WrongOffset``; ``Refused`` where size or hash disagree."""
    if not 0 <= size <= settings.UPLOAD_MAX_BYTES or offset + len(piece) > size:
        raise Refused(f"{len(piece)} bytes at byte {offset} of {size}; up to {settings.UPLOAD_MAX_BYTES}")
    path = _part(sha256, sender)
    if (stored := find_stored(sha256)) is not None:
        return stored
    _forget_abandoned(path.parent, sender)
    with _locked(path) as part:
        here = part.seek(0, 2)
        if offset != here:
            raise WrongOffset(here)
        part.write(piece)
        part.flush()
        return _settle(sha256, part, sender) if offset + len(piece) == size else None


def _settle(sha256: str, part: BinaryIO, sender: str) -> Blob:
    """Store what is whole; what has another hash is thrown away, so that the sender begins anew."""
    try:
        found = sha256_of(File(part))
        if found != sha256:
            raise Refused(f"the bytes have the hash {found}")
        return store_file(File(part))
    finally:
        _part(sha256, sender).unlink(missing_ok=True)


def _part(sha256: str, sender: str) -> Path:
    """Beside the parts of users' uploads."""
    if not SHA256.fullmatch(sha256) or not re.fullmatch(r"[a-z0-9_]+", sender):
        raise Refused(f"{sha256!r:.80} is not a SHA-256")
    return Path(settings.MEDIA_ROOT) / "unfinished" / f"{sender}-{sha256}"


def _forget_abandoned(folder: Path, sender: str) -> None:
    for path in folder.glob(f"{sender}-*"):
        if path.stat().st_mtime < time.time() - KEPT.total_seconds():
            path.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Two slots of one host may hand in the same bytes: one after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        yield part
