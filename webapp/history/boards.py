"""Every question that several policies answered, with who leads.

A question is a workload with its options on some hardware, simulated or measured on one host: only answers to
one question can be better or worse than each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from django.db.models import Avg, Case, Count, F, Max, Min, QuerySet, TextField, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from experiments.core.metrics import METRICS
from webapp.accounts.models import Project
from webapp.compare.filters import comparable
from webapp.runs.models import Run
from webapp.runs.question import step_in_words

#: What a leaderboard is about until another figure is asked for, by family.
ABOUT: Mapping[str, str] = {
    "memory": "step_time",
    "parallel": "step_time",
    "compilation": "latency",
    "cluster": "avg_jct",
    "serving": "latency_mean",
}
#: The newest runs with an answer, among which questions are looked for.
MOST_RUNS = 20_000
OPTIONS = "spec__workload__options"


@dataclass(frozen=True)
class Board:
    """A question that several policies answered; ``run`` is one of its runs, whose address is the board's."""

    run: str
    family: str
    workload: str
    hardware: str
    mode: str
    options: Mapping[str, Any]
    policies: int
    runs: int
    leader: str
    best: float
    metric: str
    last: datetime

    @property
    def question(self) -> str:
        """The step in words; empty for a trace as it was read."""
        return step_in_words({name: value for name, value in self.options.items() if value is not None})


def boards_of(project: Project) -> list[Board]:
    """Those with the most policies first."""
    runs = comparable(project).filter(state=Run.State.SUCCEEDED)
    found = [board for family in ABOUT for board in _boards(runs, family)]
    return sorted(found, key=lambda board: (-board.policies, -board.runs, board.workload))


def _boards(runs: QuerySet[Run], family: str) -> Iterator[Board]:
    metric = ABOUT[family]
    newest = runs.filter(family=family).order_by("-queued_at")
    asked = Run.objects.filter(pk__in=newest.values("pk")[:MOST_RUNS], metrics__name=metric).order_by()
    measured_on = Case(When(mode="measured", then=F("host__name")), default=Value(""))
    question = {
        "of": F("artifact__name"),
        "on": measured_on,
        "options": F(OPTIONS),
        "source": KT("spec__workload__source"),
    }
    of_each = asked.values("artifact", "hardware", "mode", "policy", knobs=F("spec__knobs"), **question)
    rows: Any = of_each.annotate(
        runs=Count("pk"),
        mean=Avg("metrics__value"),
        last=Max("queued_at"),
        one=Min(Cast("pk", TextField())),
    )
    groups: dict[bytes, list[dict[str, Any]]] = {}
    for row in rows:
        key = [row[name] for name in ("artifact", "hardware", "mode", "source", "on", "options")]
        groups.setdefault(orjson.dumps(key, option=orjson.OPT_SORT_KEYS), []).append(row)
    for answers in groups.values():
        policies = {row["policy"] for row in answers}
        if len(policies) > 1:
            yield _board(family, metric, answers, len(policies))


def _board(family: str, metric: str, answers: Sequence[Mapping[str, Any]], policies: int) -> Board:
    sign = 1 if METRICS[metric].lower_is_better else -1
    best = min(answers, key=lambda row: sign * row["mean"])
    return Board(
        best["one"],
        family,
        best["of"] or (best["source"] or "").rsplit("/", 1)[-1],
        best["on"] or best["hardware"],
        best["mode"],
        best["options"] or {},
        policies,
        sum(row["runs"] for row in answers),
        best["policy"],
        best["mean"],
        metric,
        max(row["last"] for row in answers),
    )
