"""What a comparison shows of the search for the highest rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from webapp.rates.lines import PRECISION, RateLine, lines_of, policies_of
from webapp.rates.models import RateStudy
from webapp.runs.live import seconds_left
from webapp.runs.models import Experiment


@dataclass(frozen=True)
class Panel:
    """``study`` is ``None`` where nobody has asked; ``left`` are seconds, ``None`` while not known."""

    study: RateStudy | None
    lines: Sequence[RateLine]
    policies: Sequence[str]
    most_left: int
    left: float | None
    precision: float = PRECISION

    @property
    def is_going(self) -> bool:
        return self.study is not None and self.study.ended_at is None


def panel_of(experiment: Experiment) -> Panel | None:
    """``None`` where no run serves requests at a rate."""
    policies = policies_of(experiment)
    if not policies:
        return None
    study = RateStudy.objects.filter(experiment=experiment).first()
    lines = lines_of(experiment, study) if study else []
    most_left = sum(line.most_left for line in lines)
    left = _pace_left(lines, study.created_at, most_left) if study and not study.ended_at else None
    return Panel(study, lines, policies, most_left, left)


def _pace_left(lines: Sequence[RateLine], since: datetime, most_left: int) -> float | None:
    """At the pace of the runs that have ended, no less than what the running ones still take."""
    now = timezone.now()
    running = [seconds for line in lines if line.waiting and (seconds := seconds_left(line.waiting, now))]
    ended = sum(run.is_final and run.queued_at >= since for line in lines for run in line.runs)
    if not ended:
        return None
    return max([(now - since).total_seconds() / ended * most_left, *running])


def panel_json(panel: Panel) -> dict[str, Any]:
    """The same for programs; ``study`` is there."""
    assert panel.study is not None
    study = panel.study
    return {
        "experiment": study.experiment_id,
        "attainment": study.attainment,
        "tbt_p99": study.tbt_p99,
        "delay_p50": study.delay_p50,
        "state": "searching" if panel.is_going else "ended",
        "most_runs_left": panel.most_left if panel.is_going else 0,
        "seconds_left": panel.left,
        "lines": [_line_json(line) for line in panel.lines],
    }


def _line_json(line: RateLine) -> dict[str, Any]:
    high = line.search.high
    return {
        "name": line.name,
        "policy": line.runs[0].policy,
        "max_rate": line.search.low,
        "below": high if high < float("inf") else None,
        "rates": {f"{rate:.17g}": kept for rate, kept in sorted(line.search.attained.items())},
        "waiting": line.waiting.pk if line.waiting else None,
        "reason": line.reason,
    }
