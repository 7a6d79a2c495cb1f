"""Large files in chunks: a connection that breaks or a page that is reloaded goes on at the byte where it
was.

The parts lie in the local folder ``MEDIA_ROOT/unfinished`` under the upload's id; the row says how many bytes
of the part count, so that a chunk cut off in the middle of writing is overwritten by the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.core.files.base import File
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from webapp.accounts.models import Project, User
from webapp.artifacts.models import Upload
from webapp.artifacts.services import shown_name, store_upload

#: Bytes of one chunk, at most (``DATA_UPLOAD_MAX_MEMORY_SIZE`` lets no larger body in).
CHUNK = 8 * 2**20
#: Unfinished uploads of one person, and how long one is kept that nothing is added to.
MOST_UNFINISHED = 20
KEPT = timedelta(days=7)


class WrongOffset(Exception):
    """The chunk does not begin where the upload stands: ``received`` is where it has to."""

    def __init__(self, received: int) -> None:
        super().__init__(f"the upload stands at byte {received}")
        self.received = received


class Refused(Exception):
    """The upload or chunk is not taken; the text is for the user."""


def part(upload: Upload | UUID) -> Path:
    name = upload.pk if isinstance(upload, Upload) else upload
    return Path(settings.MEDIA_ROOT) / "unfinished" / str(name)


def begin(project: Project, user: User, name: str, size: int, fingerprint: str) -> Upload:
    """A new upload, or the unfinished one of the same file. ``Refused`` where it is too large or they are too
    many.
    """
    if not 0 < size <= settings.UPLOAD_MAX_BYTES:
        raise Refused(f"{size} bytes; 1 to {settings.UPLOAD_MAX_BYTES} are taken")
    forget_abandoned()
    own = unfinished_uploads(project, user)
    known = own.filter(fingerprint=fingerprint, size=size).first()
    if known is not None:
        return known
    if Upload.objects.filter(user=user, artifact=None).count() >= MOST_UNFINISHED:
        raise Refused(f"you have {MOST_UNFINISHED} unfinished uploads: finish or discard one first")
    return Upload.objects.create(
        project=project, user=user, name=shown_name(name), size=size, fingerprint=fingerprint
    )


def unfinished_uploads(project: Project, user: User) -> QuerySet[Upload]:
    return Upload.objects.filter(project=project, user=user, artifact=None)


def standing(upload: Upload) -> int:
    """The byte at which the next chunk begins: what the row says, unless the part has got lost on
    the disk.
    """
    if upload.artifact_id is not None:
        return upload.size
    path = part(upload)
    return min(upload.received, path.stat().st_size if path.exists() else 0)


@transaction.atomic
def append(upload: Upload, offset: int, chunk: bytes) -> Upload:
    """Adds ``chunk`` at ``offset``; the last one makes the artifact. ``WrongOffset``, ``Refused`` or
    ``OSError``.
    """
    found = Upload.objects.select_for_update().get(pk=upload.pk)
    found.received = standing(found)
    if offset != found.received:
        raise WrongOffset(found.received)
    if len(chunk) > min(CHUNK, found.size - found.received):
        raise Refused(
            f"a chunk of {len(chunk)} bytes at byte {offset} of {found.size}; at most {CHUNK} at once"
        )
    _write(found, chunk)
    found.received += len(chunk)
    if found.received == found.size and found.artifact is None:
        with part(found).open("rb") as file:
            found.artifact = store_upload(found.project, found.user, found.name, File(file))
        transaction.on_commit(lambda: part(upload).unlink(missing_ok=True))
    found.save(update_fields=["received", "artifact", "touched_at"])
    return found


def _write(upload: Upload, chunk: bytes) -> None:
    """What stands behind ``received`` is of a chunk that was never acknowledged."""
    path = part(upload)
    path.parent.mkdir(mode=settings.FILE_UPLOAD_DIRECTORY_PERMISSIONS, parents=True, exist_ok=True)
    with open(path, "r+b" if path.exists() else "xb", opener=_open_private) as file:
        file.truncate(upload.received)
        file.seek(upload.received)
        file.write(chunk)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, settings.FILE_UPLOAD_PERMISSIONS)


def discard(upload: Upload) -> None:
    _remove([upload])


def forget_abandoned() -> None:
    """Uploads that nothing was added to for ``KEPT``, finished ones too: what they became stays."""
    _remove(Upload.objects.filter(touched_at__lt=timezone.now() - KEPT))


def _remove(uploads: Iterable[Upload]) -> None:
    for upload in uploads:
        name = upload.pk
        upload.delete()
        part(name).unlink(missing_ok=True)
