"""Runs side by side: repeats folded, what is equal in all of them apart, what differs as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from experiments.core.metrics import METRICS
from webapp.compare.choice import METRIC, Choice
from webapp.compare.columns import KNOB, MANY, Column, columns_of
from webapp.compare.entries import Entry, entries_of, with_older_noise
from webapp.compare.parameters import SEED, STATES, label_of, shown_value
from webapp.compare.statistics import Estimate, difference, is_better
from webapp.hosts.evidence import device_sheets
from webapp.runs.models import Run

#: What policies are ranked by until the reader sorts.
RANKED_BY = ("step_time", "latency", "avg_jct", "ttft_mean")
#: Of more parameters than these the figures would be out of sight: they come first.
MOST_BEFORE_FIGURES = 6


@dataclass(frozen=True)
class Cell:
    """A figure of a line. ``change`` is relative to the baseline, ``better`` by the metric's own
    direction.
    """

    metric: str
    estimate: Estimate | None
    change: float | None = None
    better: bool | None = None


@dataclass(frozen=True)
class Parameter:
    key: str
    value: Any
    differs: bool

    @property
    def shown_text(self) -> str:
        return shown_value(self.key, self.value)


@dataclass(frozen=True)
class Line:
    entry: Entry
    parameters: tuple[Parameter, ...]
    cells: tuple[Cell, ...]
    is_baseline: bool


@dataclass(frozen=True)
class Comparison:
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    constants: tuple[tuple[str, str], ...]
    mode: str
    repeated: bool
    baseline: Entry | None
    order: str = ""

    @property
    def family(self) -> str:
        """The family of all lines, empty where there are several."""
        families = {line.entry.run.family for line in self.lines}
        return families.pop() if len(families) == 1 else ""

    @property
    def hardware(self) -> str:
        """The hardware of all lines, however many of its devices; empty where these are of several kinds."""
        labels = [line.entry.run.hardware for line in self.lines]
        return labels[0] if len({device_sheets(label) for label in labels}) == 1 else ""

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.shown)

    @property
    def parameters(self) -> tuple[Column, ...]:
        return tuple(column for column in self.shown_columns if not column.metric)

    @property
    def metrics(self) -> tuple[Column, ...]:
        return tuple(column for column in self.shown_columns if column.metric)

    @property
    def figures_first(self) -> bool:
        """Whether the columns of figures stand before those of parameters."""
        return len(self.parameters) > MOST_BEFORE_FIGURES

    @property
    def metric_names(self) -> tuple[str, ...]:
        """All metrics that any run reports, shown or not."""
        return tuple(column.metric for column in self.columns if column.metric)

    @cached_property
    def has_dashboard_statuses(self) -> bool:
        return any(line.entry.dashboard_status for line in self.lines)

    @cached_property
    def is_folded(self) -> bool:
        """Whether some line stands for several runs."""
        return any(len(entry.runs) > 1 for entry in self.entries)

    @cached_property
    def with_ends(self) -> frozenset[str]:
        """Metrics of which some line has the ends of an interval."""
        found = (item for entry in self.entries for item in entry.estimates.items())
        return frozenset(name for name, one in found if one.low is not None)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(line.entry for line in self.lines)


def compare(
    runs: Sequence[Run], choice: Choice, pinned: str = "", titles: Mapping[UUID, str] | None = None
) -> Comparison:
    """``runs`` with their metrics prefetched; ``pinned`` is the baseline where the address names none.

    ``titles`` name runs that are called otherwise than by their policy.
    """
    entries = [_titled(entry, titles or {}) for entry in entries_of(runs, choice.unfold)]
    return compare_entries(with_older_noise(entries), choice, pinned)


def compare_entries(entries: Sequence[Entry], choice: Choice, pinned: str = "") -> Comparison:
    """The lines of a comparison; those with titles stand in the order that they come in."""
    constants, differing, of_some = _split(entries)
    columns = columns_of(entries, (*differing, *constants, *of_some), differing, choice)
    baseline = _baseline(entries, choice.baseline or pinned)
    shown = [column for column in columns if column.shown]
    is_titled = any(entry.title for entry in entries)
    order = choice if choice.sort or is_titled else replace(choice, **_usual_order(entries))
    lines = [_line(entry, shown, differing, baseline) for entry in _sorted(entries, order)]
    modes = {entry.mode for entry in entries}
    return Comparison(
        lines=tuple(lines),
        columns=tuple(columns),
        constants=tuple(
            (label_of(key), shown_value(key, value))
            for key, value in constants.items()
            if key != "mode" and value is not None and not (key.startswith(KNOB) and _one_each(entries))
        ),
        mode=modes.pop() if len(modes) == 1 else "",
        repeated=len({run.seed for entry in entries for run in entry.runs}) > 1,
        baseline=baseline,
        order=f"-{order.sort}" if order.descending else order.sort,
    )


def _titled(entry: Entry, titles: Mapping[UUID, str]) -> Entry:
    return replace(entry, title=titles.get(entry.run.pk, ""))


def _split(entries: Sequence[Entry]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Parameters that are the same in every line, those that differ, and those of some lines only.

    The last are knobs that only some policies have, which is no difference; an option that only some runs set
    is one. Model states are told by the runs that got as far. A folded line has no seed of its own.
    """
    keys = list(dict.fromkeys(key for entry in entries for key in entry.parameters))
    constants: dict[str, Any] = {}
    differing: list[str] = []
    of_some: list[str] = []
    for key in keys:
        having = [entry.parameters[key] for entry in entries if key in entry.parameters]
        equal = len({repr(value) for value in having}) == 1
        everywhere = len(having) == len(entries)
        if equal and (everywhere or key == STATES):
            constants[key] = having[0]
        elif equal and key.startswith(KNOB):
            of_some.append(key)
        elif not (equal and key == SEED):
            differing.append(key)
    return constants, differing, of_some


def _one_each(entries: Sequence[Entry]) -> bool:
    """Many policies, each once: their knobs have names in common and say nothing about one another."""
    return len(entries) >= MANY and len({entry.run.policy for entry in entries}) == len(entries)


def _baseline(entries: Sequence[Entry], run: str) -> Entry | None:
    return next((entry for entry in entries if any(str(one.pk) == run for one in entry.runs)), None)


def _line(entry: Entry, shown: Sequence[Column], differing: Sequence[str], baseline: Entry | None) -> Line:
    parameters = [_parameter(entry, column.key, differing, baseline) for column in shown if not column.metric]
    cells = [_cell(entry, column.metric, baseline) for column in shown if column.metric]
    return Line(entry, tuple(parameters), tuple(cells), entry is baseline)


def _parameter(entry: Entry, key: str, differing: Sequence[str], baseline: Entry | None) -> Parameter:
    """Highlighted where it differs from the baseline's or, without one, wherever it is not the
    same in all.
    """
    value = entry.parameters.get(key)
    differs = key in differing if baseline is None else value != baseline.parameters.get(key)
    return Parameter(key, value, differs)


def _cell(entry: Entry, name: str, baseline: Entry | None) -> Cell:
    own = entry.estimates.get(name)
    reference = baseline.estimates.get(name) if baseline and entry is not baseline else None
    if own is None or reference is None or own.is_unseen or reference.is_unseen:
        return Cell(name, own)
    change = difference(own.mean, reference.mean)
    better = None if change is None else is_better(change, METRICS[name].lower_is_better)
    return Cell(name, own, change, better)


def _usual_order(entries: Sequence[Entry]) -> dict[str, Any]:
    """Many policies, each once, are ranked by the first of ``RANKED_BY`` that they report, the best first."""
    reported = {name for entry in entries for name in entry.estimates}
    name = next((name for name in RANKED_BY if name in reported), "")
    if not name or not _one_each(entries):
        return {}
    return {"sort": f"{METRIC}{name}", "descending": METRICS[name].lower_is_better is False}


def _sorted(entries: Sequence[Entry], choice: Choice) -> list[Entry]:
    """By the chosen column, figures before words, and what has no value last in either direction."""
    if not choice.sort:
        return list(entries)
    having = [entry for entry in entries if _sort_value(entry, choice.sort) is not None]
    lacking = [entry for entry in entries if _sort_value(entry, choice.sort) is None]
    ranked = sorted(having, key=lambda e: _rank(_sort_value(e, choice.sort)), reverse=choice.descending)
    return ranked + lacking


def _sort_value(entry: Entry, key: str) -> Any:
    if key.startswith(METRIC):
        found = entry.estimates.get(key.removeprefix(METRIC))
        return found.value if found else None
    return entry.parameters.get(key)


def _rank(value: Any) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return (not is_number, float(value) if is_number else 0.0, "" if is_number else str(value))
