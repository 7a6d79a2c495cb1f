"""Logged runs compared: the parameters in which they differ, the figures that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.logged.figures import plots_of
from webapp.logged.models import Series
from webapp.presentation import pretty
from webapp.runs.models import Run

#: Columns of figures; the plots have the others.
MOST_FIGURES = 8
#: Of a run's name in a legend.
LONGEST_LABEL = 60


@dataclass(frozen=True)
class Line:
    """A run with the values of its parameters by column, and a summary of each figure or ``None``."""

    run: Run
    label: str
    params: tuple[str, ...]
    figures: tuple[Series | None, ...]


@dataclass(frozen=True)
class Comparison:
    """``differing`` are the parameters in which the runs differ, of which ``columns`` are those that the
    labels do not tell; ``same`` are the parameters that all have alike.
    """

    differing: tuple[str, ...]
    columns: tuple[str, ...]
    same: tuple[tuple[str, str], ...]
    figures: tuple[str, ...]
    lines: tuple[Line, ...]
    plots: tuple[Mapping[str, Any], ...]


def compare(runs: Sequence[Run], by: str) -> Comparison:
    """The runs in the order given."""
    params = [{"name": run.policy, **run.spec.get("knobs", {}), "seed": run.seed} for run in runs]
    names = list(dict.fromkeys(name for told in params for name in told))
    missing = object()
    differing = tuple(n for n in names if len({repr(told.get(n, missing)) for told in params}) > 1)
    same = tuple((n, pretty(params[0][n])) for n in names if params and n not in differing)
    series = list(Series.objects.filter(logged__in=[run.pk for run in runs]))
    figures = tuple(dict.fromkeys(one.name for one in sorted(series, key=_longest_first)))[:MOST_FIGURES]
    by_run = {(one.logged_id, one.name): one for one in series}
    labels, told_by_labels = _labels(params, differing)
    columns = tuple(name for name in differing if name not in told_by_labels)
    lines = tuple(
        Line(
            run,
            label,
            tuple(pretty(told.get(name)) for name in columns),
            tuple(by_run.get((run.pk, name)) for name in figures),
        )
        for run, told, label in zip(runs, params, labels, strict=True)
    )
    place = {run.pk: number for number, run in enumerate(runs)}
    series.sort(key=lambda one: (place[one.logged_id], one.name))
    named = {line.run.pk: line.label for line in lines}
    return Comparison(differing, columns, same, figures, lines, tuple(plots_of(series, named, by)))


def _longest_first(one: Series) -> tuple[int, str]:
    return -one.count, one.name


def _labels(params: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> tuple[list[str], set[str]]:
    """What tells each run from the others, with as few parameters as do, and these; equal ones are numbered.

    A parameter of which a label lacks the value is not among them.
    """
    found, names = [""] * len(params), []
    for name in differing:
        if len(set(found)) == len(found):
            break
        names.append(name)
        found = [_label(told, names) for told in params]
    whole = {
        name
        for name in names
        if all(_is_told(told, name, label) for told, label in zip(params, found, strict=True))
    }
    found = [label or str(told["name"]) for label, told in zip(found, params, strict=True)]
    seen: dict[str, int] = {}
    for place, label in enumerate(found):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            found[place] = f"{label} ({seen[label]})"
    return found, whole


def _label(params: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(_part(params, name) for name in names if name in params)[:LONGEST_LABEL]


def _part(params: Mapping[str, Any], name: str) -> str:
    return pretty(params[name]) if name == "name" else f"{name} {pretty(params[name])}"


def _is_told(params: Mapping[str, Any], name: str, label: str) -> bool:
    return name not in params or _part(params, name) in label
