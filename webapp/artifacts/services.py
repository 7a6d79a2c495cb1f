"""Changes of artifacts: storing bytes under their hash, adding models of the zoo, profiling, the trash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import IO, Any

from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from experiments.core.package_files import PREFIX, path_of
from webapp.accounts.models import Project, User
from webapp.artifacts import generated
from webapp.artifacts.laws import law_for
from webapp.artifacts.models import Artifact, Blob
from webapp.artifacts.step_options import spell_out_options
from webapp.names import is_seen
from webapp.runs import derivation, queue, turns
from webapp.runs.models import Run


def sha256_of(file: Any) -> str:
    """The hash of a file's bytes; it is left at its beginning."""
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()


def store_file(file: Any) -> Blob:
    """The file's bytes under their hash; equal bytes are kept once."""
    blob = Blob(sha256=sha256_of(file), size=file.size)
    if not default_storage.exists(blob.path):
        default_storage.save(blob.path, file)
    return Blob.objects.get_or_create(sha256=blob.sha256, defaults={"size": blob.size})[0]


def store_bytes(file: IO[bytes]) -> Blob:
    """The bytes of an open file under their hash."""
    return store_file(File(file))


def shown_name(name: str) -> str:
    """A file's name as it may be stored and shown: on one line, not longer than the column, not blank."""
    printable = "".join(filter(str.isprintable, name.encode("utf-8", "replace").decode()))[:255].strip()
    return printable if is_seen(printable) else "unnamed"


@transaction.atomic
def store_upload(
    project: Project, user: User, name: str, file: Any, source: str = Artifact.Source.UPLOAD
) -> Artifact:
    """Stores the bytes and asks a worker to read them; what they are is decided there."""
    made = Artifact.objects.create(
        project=project, name=shown_name(name), source=source, blob=store_file(file), created_by=user
    )
    _store_again(made.blob, file)
    turns.enqueue([Run(project=project, artifact=made, owner=user, kind=Run.Kind.INSPECT)])
    queue.wake()
    return made


def _store_again(blob: Blob | None, file: Any) -> None:
    """The emptying of the trash may have taken equal bytes away meanwhile; from here on the artifact holds
    them.
    """
    if blob is not None and not default_storage.exists(blob.path):
        file.seek(0)
        default_storage.save(blob.path, file)


def add_sample(project: Project, user: User, name: str, content: bytes) -> Artifact:
    return store_upload(project, user, name, ContentFile(content, name), Artifact.Source.SAMPLE)


@transaction.atomic
def add_package_file(project: Project, user: User, reference: str) -> Artifact:
    """A file that the package brings; one that the project already has is not added twice."""
    content, name = path_of(reference).read_bytes(), reference.removeprefix(PREFIX)
    samples = Artifact.objects.of(project).filter(source=Artifact.Source.SAMPLE, name=name)
    had = samples.filter(blob_id=hashlib.sha256(content).hexdigest()).order_by("pk").first()
    return had or add_sample(project, user, name, content)


@transaction.atomic
def add_zoo(project: Project, user: User, zoo: str) -> Artifact:
    """A model of the zoo; one that the project already has is not added twice."""
    had = Artifact.objects.of(project).filter(source=Artifact.Source.ZOO, zoo=zoo).first()
    if had is not None:
        return had
    made = Artifact.objects.create(
        project=project, name=zoo, zoo=zoo, source=Artifact.Source.ZOO, created_by=user
    )
    turns.enqueue([Run(project=project, artifact=made, owner=user, kind=Run.Kind.INSPECT)])
    queue.wake()
    return made


@transaction.atomic
def add_generated(project: Project, user: User, name: str) -> Artifact:
    """A trace that runs draw; one that the project already has is not added twice."""
    drawn = Artifact.objects.of(project).filter(source=Artifact.Source.GENERATED, name=name)
    return drawn.first() or Artifact.objects.create(
        project=project,
        name=name,
        source=Artifact.Source.GENERATED,
        created_by=user,
        **generated.describe(name),
    )


def open_blob(blob: Blob) -> IO[bytes]:
    found: IO[bytes] = default_storage.open(blob.path, "rb")
    return found


def capture(model: Artifact, user: User, options: Mapping[str, Any]) -> None:
    """Asks a worker to capture the step with these options, unless its memory is known or will be."""
    of_step = derivation.step_options(options)
    known = law_for(model, of_step)
    if known.law is None and not known.is_awaited and not known.reason:
        derivation.capture_of(model, of_step, owner=user)
        queue.wake()


@transaction.atomic
def profile(artifact: Artifact, user: User, device: str, options: Mapping[str, Any]) -> Run:
    """Asks a host with ``device`` to time the ops of the model's step at these options."""
    asked = Run(
        project=artifact.project,
        artifact=artifact,
        owner=user,
        kind=Run.Kind.PROFILE,
        needs=device,
        spec={"workload": {"options": spell_out_options(artifact, options)}},
    )
    turns.enqueue([asked])
    queue.wake()
    return asked


@transaction.atomic
def trash(artifact: Artifact) -> None:
    artifact.trashed_at = timezone.now()
    artifact.save(update_fields=["trashed_at"])
