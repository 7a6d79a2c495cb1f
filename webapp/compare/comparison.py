"""Runs side by side: repeats folded, what is equal in all of them apart, what differs as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from experiments.core.differences import ENDS, INTERVALS
from experiments.core.metrics import METRICS
from webapp.compare.choice import METRIC, Choice
from webapp.compare.parameters import PRECISION, SEED, STATES, label_of, parameters_of, shown_value
from webapp.compare.statistics import Estimate, difference, estimate, is_better, with_ends
from webapp.hosts.evidence import device_sheets
from webapp.runs.models import Run, RunDocument

#: So many metrics are shown until the reader chooses; the catalog's order says which come first.
METRICS_AT_FIRST = 6
#: Shown before the others of the catalog, which would hide the time behind kinds of memory.
HEADLINES = (
    *("peak_memory", "step_time", "ideal_share", "stall_time"),
    *("peak_memory_per_device", "samples_per_second", "mfu", "bubble_fraction", "exposed_communication_time"),
    *("latency", "speedup", "compile_time", "compression_ratio"),
    *("ttft_p99", "tpot_p99", "latency_mean", "slo_attainment", "throughput"),
)
#: What policies are ranked by until the reader sorts.
RANKED_BY = ("step_time", "latency", "avg_jct", "ttft_mean")
#: Always said next to the name of a run, never as a column of its own.
BESIDE_THE_NAME = ("policy", "mode")
#: How the key of a knob begins.
KNOB = "knob."
#: Of more parameters than these the figures would be out of sight: they come first.
MOST_BEFORE_FIGURES = 6
#: So many policies have knobs of one name by chance.
MANY = 3
#: Parameters, by the first part of their key, that say what was asked; the others say how it is answered.
QUESTION = ("workload", "option", "hardware")


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: a run, or its repeats with other seeds folded into one."""

    runs: tuple[Run, ...]
    parameters: Mapping[str, Any]
    estimates: Mapping[str, Estimate]
    title: str = ""

    @property
    def run(self) -> Run:
        return self.runs[0]

    @property
    def name(self) -> str:
        return self.title or self.run.policy or self.run.kind

    @property
    def mode(self) -> str:
        return self.run.mode

    @property
    def has_page(self) -> bool:
        """Whether its run is stored; what shipped with a release has no page of its own."""
        return not self.run._state.adding

    @property
    def question(self) -> tuple[tuple[str, Any], ...]:
        """What the policies of a comparison are asked about: workload, its options and hardware, by key.

        Only answers to one question can be better or worse than each other.
        """
        asked = (item for item in self.parameters.items() if item[0].split(".")[0] in QUESTION)
        return tuple(sorted(asked, key=lambda item: item[0]))

    @property
    def statuses(self) -> Mapping[str, str]:
        """How its runs ended, each once, with the words for it: ``{"failed": "1 of 3 failed"}``."""
        counts = Counter(status_of(run) for run in self.runs)
        total = len(self.runs)
        return {s: s if count == total else f"{count} of {total} {s}" for s, count in counts.items()}

    def with_noise(self) -> Entry:
        """The same with its ratios inside the noise."""
        ratios = {name: self.estimates[name] for name in INTERVALS if name in self.estimates}
        marked = {name: replace(one, inside_noise=True) for name, one in ratios.items()}
        return replace(self, estimates={**self.estimates, **marked})

    @property
    def dashboard_status(self) -> str:
        """What PyTorch's dashboard would call the ends of its runs, each once; empty for other families."""
        return ", ".join(dict.fromkeys(run.dashboard_status for run in self.runs if run.dashboard_status))

    @property
    def reason(self) -> str:
        return next((run.reason for run in self.runs if run.reason), "")


def status_of(run: Run) -> str:
    """``ok`` or ``infeasible``, or the run's state where it has no answer."""
    return run.outcome_status if run.state in Run.ANSWERED and run.outcome_status else run.state


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
class Column:
    """A column that can be shown; ``key`` is its name in the address."""

    key: str
    label: str
    shown: bool

    @property
    def metric(self) -> str:
        """The metric's name, empty for a parameter."""
        return self.key.removeprefix(METRIC) if self.key.startswith(METRIC) else ""


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
    entries = [_titled(entry, titles or {}) for entry in _entries(runs, choice.unfold)]
    return compare_entries(_with_older_noise(entries), choice, pinned)


def compare_entries(entries: Sequence[Entry], choice: Choice, pinned: str = "") -> Comparison:
    """The lines of a comparison; those with titles stand in the order that they come in."""
    constants, differing, of_some = _split(entries)
    columns = _columns(entries, (*differing, *constants, *of_some), differing, choice)
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


def _with_older_noise(entries: Sequence[Entry]) -> list[Entry]:
    """Entries whose runs said that their speed-up was noise before ratios had intervals say so too."""
    without = [one for one in entries for name in INTERVALS if _lacks_interval(one, name)]
    runs = [run.pk for entry in without for run in entry.runs]
    said = RunDocument.objects.filter(outcome__provenance__compilation__inside_the_noise=True)
    noisy = set(said.filter(run__in=runs).values_list("run", flat=True)) if runs else set()
    return [entry.with_noise() if any(run.pk in noisy for run in entry.runs) else entry for entry in entries]


def _lacks_interval(entry: Entry, name: str) -> bool:
    found = entry.estimates.get(name)
    return found is not None and found.low is None and entry.mode == "measured"


def _titled(entry: Entry, titles: Mapping[UUID, str]) -> Entry:
    return replace(entry, title=titles.get(entry.run.pk, ""))


def _entries(runs: Iterable[Run], unfold: bool) -> list[Entry]:
    """One entry for all runs that differ in nothing but the seed; one for each run when unfolded."""
    groups: dict[str, list[tuple[Run, dict[str, Any]]]] = {}
    for run in runs:
        parameters = parameters_of(run)
        key = str(run.pk) if unfold else repr([(k, v) for k, v in sorted(parameters.items()) if k != SEED])
        groups.setdefault(key, []).append((run, parameters))
    return [_entry(group, unfold) for group in groups.values()]


def _entry(group: Sequence[tuple[Run, dict[str, Any]]], unfold: bool) -> Entry:
    parameters = dict(group[0][1])
    if len(group) > 1 and not unfold:
        del parameters[SEED]
    values: dict[str, list[float]] = {}
    for run, _ in group:
        for name, value in run.figures.items():
            values.setdefault(name, []).append(value)
    return Entry(tuple(run for run, _ in group), parameters, estimates_of(values))


def estimates_of(values: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """An estimate of each figure from its values in all repeats; a ratio's has its interval."""
    estimates = {name: estimate(found) for name, found in values.items() if name not in ENDS}
    for name, (low, high) in INTERVALS.items():
        if name in estimates:
            estimates[name] = with_ends(estimates[name], values.get(low, ()), values.get(high, ()))
    return estimates


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


def _columns(
    entries: Sequence[Entry], parameters: Sequence[str], differing: Sequence[str], choice: Choice
) -> list[Column]:
    keys = [key for key in parameters if key not in BESIDE_THE_NAME]
    metrics = [f"{METRIC}{name}" for name in _metric_names(entries)]
    chosen = set(choice.columns) & {*keys, *metrics}
    told = _find_implied(entries, differing)
    usual = [key for key in differing if key not in told]
    first = sorted(metrics, key=lambda key: key.removeprefix(METRIC) not in HEADLINES)
    shown = chosen or {*usual, *first[:METRICS_AT_FIRST]}
    labels = [(key, label_of(key)) for key in keys]
    labels += [(key, METRICS[key.removeprefix(METRIC)].label) for key in metrics]
    return [Column(key, label, key in shown) for key, label in labels]


def _find_implied(entries: Sequence[Entry], differing: Sequence[str]) -> set[str]:
    """Parameters that others tell: model states follow from the precision, and of many policies a knob
    from the policy where no two lines of one policy differ in it.
    """
    found = {STATES} if PRECISION in differing else set()
    if len({entry.run.policy for entry in entries}) < MANY:
        return found
    return found | {key for key in differing if key.startswith(KNOB) and _follows_policy(entries, key)}


def _follows_policy(entries: Sequence[Entry], key: str) -> bool:
    by_policy: dict[str, set[str]] = {}
    for entry in entries:
        by_policy.setdefault(entry.run.policy, set()).add(repr(entry.parameters.get(key)))
    return all(len(values) == 1 for values in by_policy.values())


def _one_each(entries: Sequence[Entry]) -> bool:
    """Many policies, each once: their knobs have names in common and say nothing about one another."""
    return len(entries) >= MANY and len({entry.run.policy for entry in entries}) == len(entries)


def _metric_names(entries: Sequence[Entry]) -> list[str]:
    """In the catalog's order, those with a direction before those that only describe."""
    reported = {name for entry in entries for name in entry.estimates}
    known = [metric for metric in METRICS.values() if metric.name in reported]
    return [metric.name for metric in sorted(known, key=lambda metric: metric.lower_is_better is None)]


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
