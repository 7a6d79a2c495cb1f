"""The leaderboard of one question: policies by their best, and the record over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict

from experiments.core.differences import is_unseen
from experiments.core.metrics import METRICS
from webapp.accounts.models import Project
from webapp.compare.choice import choice_of
from webapp.compare.comparison import compare
from webapp.compare.entries import Entry
from webapp.compare.export_table import Column, Table
from webapp.compare.filters import MOST_RUNS, comparable
from webapp.compare.statistics import Estimate
from webapp.history.boards import ABOUT, OPTIONS
from webapp.navigation import project_url
from webapp.presentation import pretty
from webapp.runs.models import Run
from webapp.runs.question import question_of


@dataclass(frozen=True)
class Place:
    """A policy with its best knobs; ``behind`` is how much worse it is than the leader, as a fraction."""

    rank: int
    entry: Entry
    estimate: Estimate
    behind: float | None
    tried: int

    @property
    def knobs(self) -> str:
        """Those that the run's spec names, as ``lookahead 2, pool 4``."""
        told = self.entry.run.spec.get("knobs") or {}
        return ", ".join(f"{name} {pretty(value)}" for name, value in told.items())


@dataclass(frozen=True)
class Record:
    """A run that was better than all before it."""

    run: Run
    value: float


@dataclass(frozen=True)
class Leaderboard:
    """Of the newest ``runs`` of ``of``. ``unanswered`` are policies without such a figure, with how their
    runs ended.
    """

    question: str
    metric: str
    metrics: tuple[str, ...]
    places: tuple[Place, ...]
    unanswered: tuple[tuple[str, str], ...]
    records: tuple[Record, ...]
    runs: int
    of: int


def leaderboard_of(run: Run, asked: str) -> Leaderboard:
    """The leaderboard of a run's question by the metric ``asked``, where any of its runs has it."""
    every = _same_question(run)
    runs = list(every.select_related("owner").order_by("-queued_at", "-id")[:MOST_RUNS])
    of = every.order_by().count() if len(runs) == MOST_RUNS else len(runs)
    comparison = compare(runs, choice_of(QueryDict()), "")
    names = tuple(n for n in comparison.metric_names if METRICS[n].lower_is_better is not None)
    usual = ABOUT.get(run.family, "")
    metric = asked if asked in names else usual if usual in names else next(iter(names), "")
    sign = 1 if metric and METRICS[metric].lower_is_better else -1
    having = [entry for entry in comparison.entries if metric in entry.estimates]
    having.sort(key=lambda entry: sign * entry.estimates[metric].value)
    best: dict[str, list[Entry]] = {}
    for entry in having:
        best.setdefault(entry.run.policy, []).append(entry)
    missing = {e.run.policy: ", ".join(e.statuses.values()) for e in comparison.entries}
    unanswered = tuple(sorted((name, how) for name, how in missing.items() if name not in best))
    records = tuple(_records(runs, metric, sign)) if metric else ()
    return Leaderboard(
        question_of(run, with_seed=False),
        metric,
        names,
        tuple(_places(best, metric)),
        unanswered,
        records,
        len(runs),
        of,
    )


def _same_question(run: Run) -> QuerySet[Run]:
    workload = run.spec.get("workload", {})
    found = comparable(run.project).filter(
        family=run.family,
        artifact=run.artifact_id,
        hardware=run.hardware,
        mode=run.mode,
        state__in=Run.FINAL,
        **{OPTIONS: workload.get("options", {})},
    )
    if run.artifact_id is None:
        found = found.filter(spec__workload__source=workload.get("source"))
    return found.filter(host=run.host_id) if run.mode == "measured" else found


def _places(best: Mapping[str, Sequence[Entry]], metric: str) -> Iterator[Place]:
    leading: float | None = None
    for rank, entries in enumerate(best.values(), 1):
        estimate = entries[0].estimates[metric]
        leading = estimate.value if leading is None else leading
        behind = abs(estimate.value - leading) / abs(leading) if leading else None
        yield Place(rank, entries[0], estimate, behind, len(entries))


def _records(runs: Sequence[Run], metric: str, sign: int) -> Iterator[Record]:
    """In the order in which they were set."""
    best = float("inf")
    for run in sorted(runs, key=lambda run: (run.finished_at or run.queued_at, run.pk)):
        values = run.figures
        if metric in values and not is_unseen(metric, values) and sign * values[metric] < best:
            best = sign * values[metric]
            yield Record(run, values[metric])


def table_of(found: Leaderboard, run: Run) -> Table:
    """The ranking as a file, in SI units."""
    known = METRICS[found.metric]
    names = (
        Column("rank", is_figure=True),
        Column("policy"),
        Column("knobs"),
        Column("repeats", is_figure=True),
    )
    figures = [
        Column(label, known.unit, is_figure=True)
        for label in (known.label, f"{known.label}, 95 % from", f"{known.label}, to")
    ]
    rows = tuple(
        (
            place.rank,
            place.entry.run.policy,
            place.knobs,
            place.estimate.n,
            place.estimate.words or place.estimate.value,
            *(ends_of(place.estimate) if place.estimate.n > 1 else (None, None)),
        )
        for place in found.places
    )
    title = f"{run.artifact or run.family} on {run.hardware}: {known.label}"
    return Table(title, (*names, *figures), rows)


def ranking_plot(found: Leaderboard, project: Project) -> dict[str, Any]:
    """A point for each policy with the interval of its repeats, the leader on top."""
    places = found.places
    known = METRICS[found.metric]
    ends = [ends_of(place.estimate) for place in places]
    line = {
        "name": known.label,
        "x": [place.estimate.value for place in places],
        "y": [place.entry.name for place in places],
        "low": [low for low, _ in ends],
        "high": [high for _, high in ends],
        "href": [project_url(project, "runs:run", run=place.entry.run.pk) for place in places],
    }
    axes = {"x_label": known.label, "x_unit": known.unit, "y_label": "", "y_unit": ""}
    plot = {"title": f"Policies by {known.label}", "kind": "scatter", "log": "", "sampled": None, **axes}
    return plot | {"series": [line], "lanes": [place.entry.name for place in places]}


def ends_of(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is not None and estimate.high is not None:
        return estimate.low, estimate.high
    half = estimate.half_width or 0.0
    return estimate.value - half, estimate.value + half


def record_plot(found: Leaderboard, project: Project) -> dict[str, Any] | None:
    """The best figure over time as a staircase; ``None`` where nobody ever beat the first."""
    if len(found.records) < 2:
        return None
    known = METRICS[found.metric]
    line = {
        "name": "record",
        "mode": "lines+markers",
        "shape": "hv",
        "x": [f"{one.run.finished_at or one.run.queued_at:%Y-%m-%d %H:%M:%S}" for one in found.records],
        "y": [one.value for one in found.records],
        "text": [one.run.policy for one in found.records],
        "href": [project_url(project, "runs:run", run=one.run.pk) for one in found.records],
    }
    axes = {"x_label": "when (UTC)", "x_unit": "", "y_label": known.label, "y_unit": known.unit}
    plot = {"title": "The record over time", "kind": "scatter", "log": "", "sampled": None, **axes}
    return plot | {"series": [line]}
