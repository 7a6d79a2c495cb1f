"""What a row of a live experiment shows of its run: figures as soon as there are any, else why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from experiments.core.differences import NO_DIFFERENCE, is_unseen
from webapp.compare.answers.causes import words_of
from webapp.presentation import metric
from webapp.runs.among import among
from webapp.runs.by_name import ByName
from webapp.runs.models import Run, RunMetric

#: The figures by which runs of a family are told apart at first sight.
HEADLINES = {
    "memory": ("step_time", "peak_memory"),
    "parallel": ("step_time", "peak_memory_per_device", "mfu"),
    "compilation": ("latency", "speedup", "compile_time"),
    "cluster": ("avg_jct", "p99_jct"),
    "serving": ("latency_mean", "throughput", "slo_attainment"),
}
#: Ends of a speed-up's interval: they say whether there is one.
ENDS = ("speedup_low", "speedup_high")
#: Segments of the bar with the states in them, from what is done to what has not begun.
SEGMENTS = (
    ("succeeded", (Run.State.SUCCEEDED,)),
    ("infeasible", (Run.State.INFEASIBLE,)),
    ("failed", (Run.State.FAILED, Run.State.REJECTED, Run.State.CANCELLED)),
    ("running", (Run.State.RUNNING,)),
    ("queued", (Run.State.QUEUED,)),
)


@dataclass(frozen=True)
class Segment:
    """``count`` runs from ``start`` on, counted from the left."""

    name: str
    start: int
    count: int


def segments(runs: Sequence[Run]) -> tuple[Segment, ...]:
    """The runs of an experiment as one bar, an equal part for each."""
    return segments_of(Counter(run.state for run in runs))


def segments_of(counts: Mapping[str, int]) -> tuple[Segment, ...]:
    """As many runs in each state as one bar."""
    found, start = [], 0
    for name, states in SEGMENTS:
        count = sum(counts.get(state, 0) for state in states)
        if count:
            found.append(Segment(name, start, count))
        start += count
    return tuple(found)


def headlines(runs: Iterable[Run]) -> tuple[str, ...]:
    """The figures that rows of these runs show; those of several families next to one another."""
    families = dict.fromkeys(run.family for run in runs)
    return tuple(dict.fromkeys(name for family in families for name in HEADLINES.get(family, ())))


def figures(runs: Sequence[Run], names: Sequence[str]) -> dict[object, dict[str, float]]:
    """By run: the figures ``names`` of those that have ended with any."""
    found: dict[object, dict[str, float]] = {}
    rows = RunMetric.objects.filter(run__in=[run.pk for run in runs], name__in=(*names, *ENDS))
    for run, name, value in rows.values_list("run", "name", "value"):
        found.setdefault(run, {})[name] = value
    return found


def every_figure(runs: Sequence[UUID], names: Sequence[str] | None = None) -> dict[UUID, dict[str, float]]:
    """By run: all figures of those that have any, or those of these names, without an object for each."""
    found = RunMetric.objects.filter(among("run", runs))
    rows = (found if names is None else found.filter(name__in=names)).order_by().values("run")
    return dict(rows.annotate(figures=ByName("name", "value")).values_list("run", "figures"))


def show_figure(values: dict[str, float], name: str) -> SafeString:
    """A figure in its unit; a speed-up whose interval holds 1 is none."""
    if name not in values:
        return mark_safe("")
    if is_unseen(name, values):
        return format_html('<span class="soft">{}</span>', NO_DIFFERENCE)
    return SafeString(metric(values[name], name))


def cause(run: Run) -> str:
    """Why a run that has ended has no figures, in a few words; empty where it has."""
    return words_of(run) if run.is_final and run.state != Run.State.SUCCEEDED and run.reason else ""
