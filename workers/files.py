"""Stored files on this host: fetched by hash, verified, kept."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from django.conf import settings

from webapp.artifacts.models import Blob
from webapp.artifacts.services import open_blob

CHUNK = 2**20


class Damaged(Exception):
    """The storage holds other bytes than the hash says."""


def local(blob: Blob) -> Path:
    """The path of a verified copy; fetched on first use. Raises ``Damaged``, or ``OSError`` from the storage."""
    path = Path(settings.BLOB_CACHE) / blob.sha256[:2] / blob.sha256
    if path.is_file() and path.stat().st_size == blob.size:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open_blob(blob) as source, tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as copy:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            copy.write(chunk)
    if digest.hexdigest() != blob.sha256:
        os.unlink(copy.name)  # noqa: PTH108
        raise Damaged(f"the stored file {blob.sha256} has the hash {digest.hexdigest()}")
    os.replace(copy.name, path)  # noqa: PTH105
    return path
