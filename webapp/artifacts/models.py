"""Artifacts: an uploaded file (or zoo model) and what it turned out to be; blobs are stored under
their hash.
"""

from __future__ import annotations

import uuid

from django.db import models

from webapp.accounts.models import Project, User


class Blob(models.Model):
    """Bytes in the file storage under their SHA-256; shared by every artifact with the same content."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    size = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    @property
    def path(self) -> str:
        """Where the file storage keeps it: never a name that a user chose."""
        return f"blobs/{self.sha256[:2]}/{self.sha256}"


class ArtifactQuerySet(models.QuerySet["Artifact"]):
    def of(self, project: Project) -> ArtifactQuerySet:
        """Those of the project that are not in the trash."""
        return self.filter(project=project, trashed_at=None)

    def ready(self) -> ArtifactQuerySet:
        return self.filter(state=Artifact.State.READY)

    def for_list(self) -> ArtifactQuerySet:
        """With what a row of the list shows: blob, uploader and number of policy runs."""
        runs = models.Count("runs", filter=models.Q(runs__kind="policy", runs__trash=None))
        return self.select_related("blob", "created_by").annotate(run_count=runs)


class Artifact(models.Model):
    """A model, step or trace of a project. Parsed by a worker's sandboxed child, never by a page.

    ``source`` is how it came here. Every run draws a ``generated`` one anew, by its name. A ``derived`` one
    (a captured or profiled Step) names its parent and the ``derive_key`` (options, torch version, host) under
    which it is found again.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "waiting to be read"
        READY = "ready", "ready"
        REJECTED = "rejected", "rejected"

    class Source(models.TextChoices):
        UPLOAD = "upload", "uploaded"
        ZOO = "zoo", "from the zoo"
        SAMPLE = "sample", "sample"
        DERIVED = "derived", "derived"
        GENERATED = "generated", "drawn from a seed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=255)
    source = models.CharField(max_length=10, choices=Source, default=Source.UPLOAD)
    zoo = models.CharField(max_length=80, blank=True)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, null=True, blank=True, related_name="artifacts")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    kind = models.CharField(max_length=20, blank=True)
    format = models.CharField(max_length=40, blank=True)
    reason = models.TextField(blank=True)
    summary = models.JSONField(default=dict)
    assumed = models.JSONField(default=list)
    warnings = models.JSONField(default=list)
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="derived"
    )
    derive_key = models.CharField(max_length=64, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    trashed_at = models.DateTimeField(null=True, blank=True)

    objects = ArtifactQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["project", "-id"])]
        constraints = [
            models.UniqueConstraint(
                fields=["parent", "derive_key"],
                condition=models.Q(source="derived"),
                name="one_derivation_per_key",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def fileless(self) -> str:
        """How commands name what has no file: a model of the zoo, a trace drawn from a seed; else empty."""
        if self.source == self.Source.GENERATED:
            return self.name
        return f"zoo:{self.zoo}" if self.zoo else ""

    def first_of_its_bytes(self) -> Artifact | None:
        """The project's earliest artifact with just this content, where it came before this one."""
        same = Artifact.objects.of(self.project).filter(blob_id=self.blob_id, pk__lt=self.pk)
        return same.order_by("pk").first() if self.blob_id else None

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}


class Upload(models.Model):
    """A large file on its way here, chunk by chunk: the first ``received`` bytes of ``size`` are kept.

    ``fingerprint`` is how the sender's browser knows the file again after a reload; ``artifact`` is what it
    became.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="uploads")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="uploads")
    name = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=400)
    size = models.BigIntegerField()
    received = models.BigIntegerField(default=0)
    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["user", "project", "fingerprint"])]

    def __str__(self) -> str:
        return self.name

    @property
    def fraction(self) -> float:
        return self.received / self.size if self.size else 0.0
