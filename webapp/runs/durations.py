"""How long runs take, from those that have ended: the median of a policy on the workload, else on any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Aggregate, Count, DurationField, ExpressionWrapper, F
from django.utils import timezone

from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact
from webapp.runs.grid import Trial
from webapp.runs.models import Run, RunQuerySet

#: Older runs tell of other revisions.
REMEMBERED = timedelta(days=90)


class Median(Aggregate):
    function = "PERCENTILE_CONT"
    template = "%(function)s(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = DurationField()


@dataclass(frozen=True)
class Past:
    """The median of so many runs, in seconds."""

    seconds: float
    runs: int


#: By family, policy and mode.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Estimate:
    """What runs will take together, in seconds of the slots that carry them out.

    ``known`` of the runs asked for have a past, which are ``past`` runs; the others are not in ``seconds``.
    """

    seconds: float
    known: int
    asked: int
    past: int

    @property
    def unknown(self) -> int:
        return self.asked - self.known


def past_durations(project: Project, artifacts: Sequence[Artifact]) -> dict[Key, Past]:
    """Medians of the project's answered runs: those on ``artifacts`` go before those on others."""
    taken = ExpressionWrapper(F("finished_at") - F("started_at"), output_field=DurationField())
    found = Run.objects.filter(
        project=project, kind=Run.Kind.POLICY, state__in=Run.ANSWERED, started_at__isnull=False
    )
    recent = found.filter(queued_at__gte=timezone.now() - REMEMBERED).annotate(taken=taken)
    return _medians(recent) | _medians(recent.filter(artifact__in=artifacts))


def _medians(runs: RunQuerySet) -> dict[Key, Past]:
    rows = runs.order_by().values("family", "policy", "mode").annotate(median=Median("taken"), n=Count("id"))
    return {_key(row): Past(row["median"].total_seconds(), row["n"]) for row in rows if row["median"]}


def _key(row: Mapping[str, Any]) -> Key:
    return row["family"], row["policy"], row["mode"]


def estimate(trials: Iterable[Trial], past: Mapping[Key, Past], slots: int) -> Estimate:
    """The runs shared out over ``slots``; no less than the longest of them takes."""
    keys = [_key(trial.spec) for trial in trials]
    known = [past[key] for key in keys if key in past]
    seconds = [one.seconds for one in known]
    together = max(sum(seconds) / max(slots, 1), max(seconds, default=0.0))
    behind = sum(past[key].runs for key in set(keys) if key in past)
    return Estimate(together, len(known), len(keys), behind)
