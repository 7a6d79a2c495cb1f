"""Changes that a comparison makes: pinning the baseline for everybody, keeping what is compared."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from uuid import UUID

from django.http import QueryDict

from webapp.accounts.models import Project
from webapp.compare.filters import named_runs
from webapp.compare.models import Selection
from webapp.runs.models import Experiment, Run

#: Runs that an address names one by one. Every link of a page repeats its address.
MOST_NAMED = 50


def pin(experiment: Experiment, run: Run | None) -> None:
    """Makes ``run`` the baseline that everybody sees at first; ``None`` takes it away."""
    experiment.pinned = run
    experiment.save(update_fields=["pinned"])


def shorten(project: Project, query: QueryDict) -> QueryDict:
    """The same query with a kept selection in place of many runs."""
    if not is_long(query):
        return query
    short = query.copy()
    del short["run"]
    short["chosen"] = _keep(project, sorted(named_runs(query))).key
    return short


def is_long(query: QueryDict) -> bool:
    return len(named_runs(query)) > MOST_NAMED


def _keep(project: Project, runs: Sequence[UUID]) -> Selection:
    digest = hashlib.sha256(b"".join(run.bytes for run in runs)).digest()
    key = base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")
    kept, _ = Selection.objects.get_or_create(project=project, key=key, defaults={"runs": list(runs)})
    return kept


def unfold(project: Project, query: QueryDict) -> QueryDict:
    """The same query with the runs of the selection that it names; as it is where it names runs or none."""
    kept = Selection.objects.filter(project=project, key=query.get("chosen", "")).first()
    if kept is None or "run" in query:
        return query
    whole = query.copy()
    whole.setlist("run", [str(run) for run in kept.runs])
    return whole
