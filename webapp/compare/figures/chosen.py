"""Which figure of a comparison is drawn: the one that the address names, else its family's first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webapp.accounts.models import Project
from webapp.compare import plots
from webapp.compare.answer import Answer
from webapp.compare.answers.case import Case
from webapp.compare.answers.cluster import rates
from webapp.compare.choice import Choice
from webapp.compare.comparison import Comparison
from webapp.compare.figures import servers
from webapp.compare.figures.boxes import Boxes, box_metric, boxes_of, group_keys
from webapp.compare.figures.coordinates import coordinates
from webapp.compare.figures.curves import distribution
from webapp.compare.figures.front import front
from webapp.compare.figures.parts import parts
from webapp.compare.figures.ratios import ratios
from webapp.compare.figures.schedulers import by_fairness, by_load, by_size, by_utilization
from webapp.hosts.evidence import SimulatorErrors

Build = Callable[[Case], dict[str, Any] | None]
#: Figures that are there only where several rates of arrivals were asked for.
LOAD = "load"
BY_RATE = (LOAD, "attainment", "goodput", "latency", "answered")
#: Figures of an answer by family, the first shown first: key, what its button says, what draws it.
OF_FAMILIES: dict[str, tuple[tuple[str, str, Build], ...]] = {
    "memory": (("front", "time and memory", front),),
    "parallel": (("front", "time and memory", front), ("parts", "where the step goes", parts)),
    "compilation": (("ratios", "speed-up", ratios),),
    "cluster": (
        (LOAD, "by load", by_load),
        ("distribution", "done by then", distribution),
        ("sizes", "by size of jobs", by_size),
        ("utilization", "utilization", by_utilization),
        ("fairness", "makespan and fairness", by_fairness),
    ),
    "serving": (
        ("attainment", "objective by rate", servers.attainment),
        ("goodput", "goodput by rate", servers.goodput),
        ("latency", "latency by rate", servers.latency),
        ("answered", "latency by answered", servers.latency_by_answered),
        ("scale", "objective by its width", servers.attainment_by_scale),
        ("distribution", "answered by then", distribution),
        ("tokens", "first and later tokens", servers.tokens),
    ),
}
#: Figures of every comparison; of so many lines boxes come first.
BOXES, MANY_LINES = ("boxes", "boxes"), 200
OF_ALL = (("scatter", "scatter"), ("bars", "bars"), ("coordinates", "parallel coordinates"))


@dataclass(frozen=True)
class Drawn:
    """The figure ``key``: ``plot`` for ``plots.js``, and ``scatter``, ``coordinates`` or ``boxes`` with what
    these need.

    ``choices`` are all figures of the comparison, as (key, what the button says).
    """

    key: str
    choices: tuple[tuple[str, str], ...]
    plot: dict[str, Any] | None = None
    scatter: plots.Scatter | None = None
    coordinates: dict[str, Any] | None = None
    boxes: Boxes | None = None


def draw_chosen(
    comparison: Comparison, answer: Answer | None, choice: Choice, project: Project, errors: SimulatorErrors
) -> Drawn | None:
    """``None`` where no run has a figure yet."""
    every = OF_FAMILIES[comparison.family] if answer else ()
    own = [row for row in every if answer and _applies(row[0], answer.case)]
    groups = group_keys(comparison, box_metric(comparison, choice))
    boxes = [BOXES] if groups else []
    common = (*boxes, *OF_ALL) if len(comparison.lines) > MANY_LINES else (*OF_ALL, *boxes)
    choices = (*((key, label) for key, label, _ in own), *common)
    builders = {key: build for key, _, build in own}

    def draw(key: str) -> Drawn | None:
        if key == "scatter":
            scatter = plots.scatter(comparison, choice, project, errors)
            return Drawn(key, choices, plot=scatter.plot, scatter=scatter) if scatter else None
        if key == "coordinates":
            lines = coordinates(comparison, project)
            return Drawn(key, choices, coordinates=lines) if lines else None
        if key == "boxes":
            found = boxes_of(comparison, choice, groups, project)
            return Drawn(key, choices, plot=found.plot, boxes=found) if found else None
        plot = plots.bars(comparison, choice, project) if key == "bars" else _built(builders[key], answer)
        return Drawn(key, choices, plot=plot) if plot else None

    keys = [key for key, _ in choices]
    wanted = [choice.figure, *keys] if choice.figure in keys else keys
    return next(filter(None, map(draw, wanted)), None)


def _applies(key: str, case: Case) -> bool:
    return key not in BY_RATE or len(rates(case)) > 1


def _built(build: Build, answer: Answer | None) -> dict[str, Any] | None:
    return build(answer.case) if answer else None
