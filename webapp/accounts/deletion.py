"""Deleting for good: what an admin asks for, and what has been in a trash for as long as it is kept.

A million runs take longer than any request. So they go some at a time, each part by itself, and what is left
of them when a process ends is deleted by the next one. Nothing of it comes back once it has begun.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from auditlog.context import set_actor
from django.conf import settings
from django.core.files.storage import default_storage
from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from webapp.accounts.models import Deletion, Team, User
from webapp.accounts.trash import KINDS, RUNS_BY, find, in_trash, say_is
from webapp.artifacts.models import Artifact, Blob
from webapp.runs import queue, trashing
from webapp.runs.models import Run

#: Bytes that are younger stay, named or not.
SETTLED = timedelta(days=1)
#: So many runs go within the request that asks for it.
AT_ONCE = 500
#: How long the process for periodic tasks deletes before it looks for other work.
SECONDS = 5.0

logger = logging.getLogger(__name__)


@transaction.atomic
def delete(team: Team, kind: str, key: str, by: User) -> str:
    """Delete a thing in the team's trash for good, before its time, and say so.

    What has many runs is deleted by the process for periodic tasks.
    """
    found = find(team, kind, key)
    said, begun = say_is(found), _begin(team, kind, found, by)
    if begun.runs <= AT_ONCE:
        _go_on(begun, math.inf)
        return f"{said} deleted for good."
    transaction.on_commit(functools.partial(queue.send, queue.PURGE))
    runs = "" if kind == "runs" else f", with {begun.runs:,} runs"
    return f"{said} being deleted for good{runs}: the list says how far that is."


def apply_retention(now: datetime) -> None:
    """Begin to delete what has been in a trash for longer than ``TRASH_DAYS``.

    Runs that a project keeps no longer go into its team's.
    """
    before = now - timedelta(days=settings.TRASH_DAYS)
    for team in Team.objects.order_by("pk"):
        for kind in KINDS:
            for thing in in_trash(kind, team).filter(trashed_at__lt=before):
                _begin(team, kind, thing, None)
        for project in team.projects.filter(trashed_at=None, keep_runs_days__isnull=False):
            trashing.keep_no_longer(project, now)


def go_on(seconds: float = SECONDS) -> bool:
    """Delete what is being deleted, for so long; whether something is left.

    The team's log has it from who asked for it. One that fails is tried again later, and holds up no other.
    """
    until = time.monotonic() + seconds
    for begun in Deletion.objects.select_related("team", "by").order_by("pk"):
        try:
            with set_actor(begun.by):
                if not _go_on(begun, until):
                    return True
        except (DatabaseError, OSError):
            logger.exception("not deleted: %s", begun)
    return False


def _begin(team: Team, kind: str, thing: Any, by: User | None) -> Deletion:
    known = {"team": team, "runs": _runs_of(kind, thing).count(), "by": by}
    return Deletion.objects.get_or_create(kind=kind, key=str(thing.pk), defaults=known)[0]


def _runs_of(kind: str, thing: Any) -> QuerySet[Run]:
    """The runs that go with it: a run outlives the artifact that it used."""
    return Run.everything.filter(**{RUNS_BY[kind]: thing}) if kind in RUNS_BY else Run.everything.none()


def _go_on(begun: Deletion, until: float) -> bool:
    """Whether all of it is gone."""
    thing = in_trash(begun.kind, begun.team).filter(pk=begun.key).first()
    if thing is not None:
        runs = _runs_of(begun.kind, thing)
        while trashing.delete_some(runs):
            if time.monotonic() > until:
                return False
    with transaction.atomic():
        if thing is not None:
            DELETE[begun.kind](thing)
        begun.delete()
        _drop_unnamed_bytes()
    return True


def _delete_artifact(artifact: Artifact) -> None:
    family = [artifact.pk, *artifact.derived.values_list("pk", flat=True)]
    Run.everything.filter(artifact__in=family, kind=Run.Kind.POLICY).update(artifact=None)
    artifact.delete()


def _delete(thing: Any) -> None:
    thing.delete()


DELETE: Mapping[str, Callable[[Any], None]] = {
    "project": _delete,
    "experiment": trashing.delete_experiment,
    "artifact": _delete_artifact,
    "runs": _delete,
}


def _drop_unnamed_bytes() -> None:
    """Remove blobs that no artifact names. Row and file go under one lock: who stores the same bytes
    meanwhile waits.

    A fresh blob may belong to a step whose artifact a worker is about to write.
    """
    settled = Blob.objects.filter(created_at__lt=timezone.now() - SETTLED)
    named = Artifact.objects.filter(blob=OuterRef("pk"))
    for blob in settled.filter(~Exists(named)).select_for_update():
        default_storage.delete(blob.path)
        blob.delete()
