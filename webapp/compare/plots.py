"""The plots of a comparison, as the JSON that ``plots.js`` draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.metrics import METRICS
from webapp.accounts.models import Project
from webapp.compare import labels
from webapp.compare.choice import Choice
from webapp.compare.comparison import Comparison, Line
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import addresses, by_mechanism, look_of
from webapp.compare.parameters import WORKLOAD, label_of, shown_value
from webapp.compare.statistics import pareto_front
from webapp.hosts.evidence import NOT_VALIDATED, SimulatorErrors

#: So many points have their names next to them; of more only the front's, and every name is on hover.
LABELED = 12
#: Hues of the color-blind-safe set in the design tokens.
HUES = 8
USUAL_AXES = (
    ("step_time", "peak_memory"),
    ("step_time", "peak_memory_per_device"),
    ("compile_time", "latency"),
    ("avg_queueing_delay", "avg_jct"),
    ("throughput", "normalized_latency_p50"),
)


@dataclass(frozen=True)
class Front:
    """The lines that no other line of the same mode, workload and hardware beats in both axes.

    ``question`` says which workload and hardware, where the comparison has several.
    """

    mode: str
    question: str
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        return ", ".join(part for part in ("Pareto front", self.question, self.mode) if part)


@dataclass(frozen=True)
class Scatter:
    plot: dict[str, Any]
    x: str
    y: str
    fronts: tuple[Front, ...]


def axes(comparison: Comparison, choice: Choice) -> tuple[str, str] | None:
    """The chosen axes, else the usual pair that the runs report, else their first two metrics."""
    names = comparison.metric_names
    if len(names) < 2:
        return None
    usual = next((pair for pair in USUAL_AXES if set(pair) <= set(names)), (names[1], names[0]))
    x = choice.x if choice.x in names else usual[0]
    return x, choice.y if choice.y in names else usual[1]


def scatter(
    comparison: Comparison, choice: Choice, project: Project, errors: SimulatorErrors
) -> Scatter | None:
    """One series for each mode and question, of a single one for each mechanism; each Pareto front as a
    staircase.
    """
    chosen = axes(comparison, choice)
    if chosen is None:
        return None
    x, y = chosen
    having = [entry for entry in comparison.entries if x in entry.estimates and y in entry.estimates]
    if not having:
        return None
    groups = _groups(having)
    fronts = _fronts(groups, x, y)
    named = {id(entry) for front in fronts for entry in front.entries}
    labeled = named if len(having) > LABELED else {id(entry) for entry in having}
    beside = _beside(having, x, y, labeled)
    series = []
    for name, look, members in _series(groups, comparison.family):
        points = _points(members, x, y, beside, project)
        hover = [_describe(entry, errors) for entry in members]
        series.append({"name": name, **look, **points, "hover": hover})
    for index, front in enumerate(fronts):
        if len(front.entries) > 1:
            look = _look(index, front.entries[0].run.family, len(groups), comparison.family)
            series.append({"name": front.name, **look, **_staircase(front, x, y)})
    plot = _plot(f"{METRICS[y].label} against {METRICS[x].label}", "scatter", series, y)
    plot |= {"x_label": METRICS[x].label, "x_unit": METRICS[x].unit}
    return Scatter(plot, x, y, fronts)


def _groups(entries: Sequence[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Entries by mode and question; the question is spelled only where it differs, "" where there is one."""
    common = set.intersection(*({repr(item) for item in entry.question} for entry in entries))
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        own = [_spell(key, value) for key, value in entry.question if repr((key, value)) not in common]
        groups.setdefault((entry.mode, ", ".join(own)), []).append(entry)
    return groups


def _series(
    groups: dict[tuple[str, str], list[Entry]], family: str
) -> Iterator[tuple[str, dict[str, str], list[Entry]]]:
    """Name, look and points of each series."""
    if len(groups) == 1 and family:
        (entries,) = groups.values()
        for mechanism, members in by_mechanism(entries, family).items():
            yield mechanism, look_of(mechanism, family), members
        return
    for index, ((mode, question), members) in enumerate(groups.items()):
        name = ", ".join(filter(None, (question or members[0].run.family, mode)))
        yield name, _look(index, members[0].run.family, len(groups), family), members


def _spell(key: str, value: Any) -> str:
    shown = shown_value(key, value)
    return shown if key in ("workload", "hardware") else f"{label_of(key)} {shown}"


def _fronts(groups: dict[tuple[str, str], list[Entry]], x: str, y: str) -> tuple[Front, ...]:
    """None where an axis has no direction: then nothing is better than anything."""
    lower_x, lower_y = METRICS[x].lower_is_better, METRICS[y].lower_is_better
    if lower_x is None or lower_y is None:
        return ()
    found = []
    for (mode, question), members in groups.items():
        points = [(entry.estimates[x].value, entry.estimates[y].value) for entry in members]
        front = pareto_front(points, (lower_x, lower_y))
        found.append(Front(mode, question, tuple(members[index] for index in front)))
    return tuple(found)


def _look(index: int, family: str, groups: int, only: str) -> dict[str, str]:
    """A group has its family's hue where it is single or families are mixed (``only`` is empty), else one of
    its own; a front has the hue of its points.
    """
    return {"family": family} if groups == 1 or not only else {"color": f"plot-{index % HUES + 1}"}


def _points(
    entries: Sequence[Entry], x: str, y: str, beside: dict[int, tuple[str, str]], project: Project
) -> dict[str, Any]:
    return {
        "mode": "markers+text",
        "x": [entry.estimates[x].value for entry in entries],
        "y": [entry.estimates[y].value for entry in entries],
        "text": [beside[id(entry)][0] for entry in entries],
        "textposition": [beside[id(entry)][1] for entry in entries],
        "href": addresses(entries, project),
    }


def _beside(entries: Sequence[Entry], x: str, y: str, labeled: set[int]) -> dict[int, tuple[str, str]]:
    """The name next to each point and its side, of all groups together; those on one spot share one name."""
    spots: dict[tuple[str, str], list[int]] = {}
    for index, entry in enumerate(entries):
        if id(entry) in labeled:
            spot = (f"{entry.estimates[x].value:.3g}", f"{entry.estimates[y].value:.3g}")
            spots.setdefault(spot, []).append(index)
    text = [""] * len(entries)
    for members in spots.values():
        names = list(dict.fromkeys(entries[index].name for index in members))
        text[members[0]] = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    points = [(entry.estimates[x].value, entry.estimates[y].value) for entry in entries]
    return {id(entry): one for entry, one in zip(entries, labels.place_labels(points, text), strict=True)}


def _describe(entry: Entry, errors: SimulatorErrors) -> str:
    """Policy and knobs, and how its figures came about."""
    knobs = [
        f"{label_of(key)} {shown_value(key, value)}"
        for key, value in entry.parameters.items()
        if key.startswith("knob.")
    ]
    mode = entry.mode
    if mode == "simulated":
        error = errors.of(entry.run.family, entry.run.hardware)
        mode = f"{mode} ({error.words if error else NOT_VALIDATED})"
    return ", ".join([entry.name, *knobs, mode])


def _staircase(front: Front, x: str, y: str) -> dict[str, Any]:
    return {
        "mode": "lines",
        "shape": "hv" if METRICS[x].lower_is_better == METRICS[y].lower_is_better else "vh",
        "x": [entry.estimates[x].value for entry in front.entries],
        "y": [entry.estimates[y].value for entry in front.entries],
        "text": [entry.name for entry in front.entries],
    }


def bars(comparison: Comparison, choice: Choice, project: Project) -> dict[str, Any] | None:
    """One bar for each line, one color for each mode; ``?bar=`` names the metric."""
    names = comparison.metric_names
    if not names:
        return None
    usual = axes(comparison, choice)
    metric = choice.bar if choice.bar in names else (usual[0] if usual else names[0])
    called = _names(comparison)
    having = [entry for entry in comparison.entries if metric in entry.estimates]
    series = []
    for mode in dict.fromkeys(entry.mode for entry in having):
        members = [entry for entry in having if entry.mode == mode]
        x = [called[id(entry)] for entry in members]
        y = [entry.estimates[metric].value for entry in members]
        href = addresses(members, project)
        series.append({"name": mode, "x": x, "y": y, "href": href})
    return _plot(METRICS[metric].label, "bar", series, metric) | {"metric": metric}


def _plot(title: str, kind: str, series: list[dict[str, Any]], y: str) -> dict[str, Any]:
    unit = METRICS[y].unit
    return {
        "title": title,
        "kind": kind,
        "x_label": "",
        "x_unit": "",
        "y_label": METRICS[y].label,
        "y_unit": unit,
        "log": "",
        "sampled": None,
        "series": series,
    }


def _names(comparison: Comparison) -> dict[int, str]:
    """A name for each line, each used once: the policy, with as little of what differs as tells its lines
    apart.
    """
    policies = Counter(line.entry.name for line in comparison.lines)
    telling = _telling([line for line in comparison.lines if policies[line.entry.name] > 1])
    used: Counter[str] = Counter()
    found: dict[int, str] = {}
    for line in comparison.lines:
        name = line.entry.name if policies[line.entry.name] == 1 else _long_name(line, telling)
        used[name] += 1
        found[id(line.entry)] = name if used[name] == 1 else f"{name} #{used[name]}"
    return found


def _telling(lines: Sequence[Line]) -> list[str]:
    """Parameters that differ, each only where those before it leave lines of one policy alike."""
    chosen: list[str] = []
    for key in dict.fromkeys(p.key for line in lines for p in line.parameters if p.differs):
        if len(_distinguish(lines, [*chosen, key])) > len(_distinguish(lines, chosen)):
            chosen.append(key)
    return chosen


def _distinguish(lines: Sequence[Line], keys: Sequence[str]) -> set[tuple[str, ...]]:
    return {
        (line.entry.name, *(str(p.shown_text) for p in line.parameters if p.key in keys and p.differs))
        for line in lines
    }


def _long_name(line: Line, keys: Sequence[str]) -> str:
    parts = [p for p in line.parameters if p.key in keys and p.differs and p.value is not None]
    words = [str(p.shown_text) if p.key == WORKLOAD else f"{label_of(p.key)} {p.shown_text}" for p in parts]
    return ", ".join([line.entry.name, *words[:4]])[:80]
