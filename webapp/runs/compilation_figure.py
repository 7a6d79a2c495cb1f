"""What a compilation run did, as its page shows it: both graphs side by side, costs by op, when compiling
pays back.

Graphs are compared like two versions of a text: ops that stayed line up, long runs of them are folded. Ops on
weights alone, which are computed once, are counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from experiments.core.dashboard import STATUS
from experiments.core.differences import NO_DIFFERENCE, interval_of, is_unseen
from webapp.runs.figures import plot_of
from webapp.runs.graph_drawing import Drawing, drawings_of

#: Unchanged ops around a change that are shown, and rows of the whole comparison.
CONTEXT, MOST_ROWS = 2, 1200
#: Figures of a search that are times.
IN_SECONDS = ("seconds", "cost_before", "cost_after")
#: Kinds of ops in the plot of costs.
MOST_KINDS = 12
SIGNS = {"kept": "", "rewired": "~", "new": "+", "once": "●", "gone": "−"}
WORDS = {
    "kept": "as before",
    "rewired": "reads something else",
    "new": "new",
    "once": "computed once, before the first call",
    "gone": "gone",
}


@dataclass(frozen=True)
class OpCell:
    """One op in one of the two columns; ``state`` is one of ``SIGNS``, ``reads`` its inputs with weights cut
    short.
    """

    name: str
    target: str
    reads: str
    inputs: str
    shape: str
    seconds: float | None
    state: str

    @property
    def sign(self) -> str:
        return SIGNS[self.state]

    @property
    def words(self) -> str:
        return WORDS[self.state]


@dataclass(frozen=True)
class Line:
    """A row of the comparison; or, with ``folded``, so many unchanged ops."""

    before: OpCell | None = None
    after: OpCell | None = None
    folded: int = 0


@dataclass(frozen=True)
class CompilationView:
    lines: tuple[Line, ...]
    unchanged: int
    once: int
    left_out: int
    drawings: tuple[Drawing, ...]
    applied: tuple[tuple[str, int], ...]
    refused: tuple[tuple[str, str], ...]
    search: tuple[tuple[str, float, str], ...]
    accuracy: tuple[tuple[str, Any], ...]
    payback: str
    measured: tuple[tuple[str, str], ...]
    plots: tuple[Mapping[str, Any], ...]
    kernels: tuple[Mapping[str, Any], ...]
    breaks: tuple[Mapping[str, Any], ...]
    recompiles: tuple[Mapping[str, Any], ...]


def compilation_view(outcome: Mapping[str, Any]) -> CompilationView | None:
    """``None`` where the outcome is not of a graph that was compiled or rewritten."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    if not isinstance(plan.get("before"), list):
        return None
    notes = (outcome.get("provenance") or {}).get("compilation") or {}
    report: Mapping[str, Any] = plan.get("report") or {}
    lines = list(_lines(plan["before"], plan["after"])) if "after" in plan else []
    same = bool(lines) and all(line.folded or (line.after and line.after.state == "kept") for line in lines)
    return CompilationView(
        lines=() if same else tuple(lines[:MOST_ROWS]),
        unchanged=sum(line.folded or 1 for line in lines) if same else 0,
        once=sum(row["kind"] == "op" and row["state"] == "once" for row in plan.get("after", ())),
        left_out=max(0, len(lines) - MOST_ROWS),
        drawings=drawings_of(plan),
        applied=tuple(Counter(str(step["rule"]) for step in plan.get("applied", ())).most_common()),
        refused=tuple(sorted((plan.get("refused") or {}).items())),
        search=tuple(
            (name.replace("_", " "), value, "s" if name in IN_SECONDS else "")
            for name, value in (plan.get("search") or {}).items()
        ),
        accuracy=tuple(_accuracy(plan, notes)),
        payback=payback(outcome),
        measured=tuple(_tell_measurement(notes)),
        plots=tuple(_plots(outcome, plan)),
        kernels=tuple(map(_kernel, (report.get("kernels") or {}).get("scheduled") or ())),
        breaks=tuple(report.get("breaks") or ()),
        recompiles=tuple(report.get("recompiles") or ()),
    )


def _lines(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    old = [row for row in before if row["kind"] == "op"]
    new = [row for row in after if row["kind"] == "op" and row["state"] != "once"]
    names = [row["name"] for row in old], [row["name"] for row in new]
    staying = {row["name"] for row in new}
    weights = {
        row["name"]: row["target"].rsplit(".", 1)[-1]
        for row in (*before, *after)
        if row["kind"] == "constant"
    }
    cell = partial(_cell, weights)
    for tag, i, j, k, m in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs = [
                Line(cell(a, "kept"), cell(b, b["state"])) for a, b in zip(old[i:j], new[k:m], strict=True)
            ]
            yield from _fold(pairs)
            continue
        for place in range(max(j - i, m - k)):
            left = old[i + place] if i + place < j else None
            right = new[k + place] if k + place < m else None
            gone = "gone" if left and left["name"] not in staying else "kept"
            ours = cell(right, right["state"]) if right else None
            yield Line(cell(left, gone) if left else None, ours)


def _fold(pairs: Sequence[Line]) -> Iterator[Line]:
    """Unchanged pairs far from any change are counted instead of shown."""
    changed = [n for n, line in enumerate(pairs) if line.after and line.after.state != "kept"]
    near = {n for at in (*changed, -1, len(pairs)) for n in range(at - CONTEXT, at + CONTEXT + 1)}
    waiting = 0
    for number, line in enumerate(pairs):
        if number not in near:
            waiting += 1
            continue
        if waiting:
            yield Line(folded=waiting)
            waiting = 0
        yield line
    if waiting:
        yield Line(folded=waiting)


def _cell(weights: Mapping[str, str], row: Mapping[str, Any], state: str) -> OpCell:
    shape = "×".join(map(str, row["shape"])) or "scalar"
    return OpCell(
        row["name"],
        short(row["target"]),
        ", ".join(weights.get(name, name) for name in row["inputs"]),
        ", ".join(row["inputs"]),
        f"{row['dtype']} {shape}",
        row.get("seconds"),
        state,
    )


def short(target: str) -> str:
    """``aten.conv2d.default`` -> ``conv2d``."""
    parts = target.split(".")
    return parts[1] if len(parts) > 2 else target


def _kernel(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the names of its ops as the graph's own table has them: ``sub, add, relu``."""
    return {**row, "names": ", ".join(short(str(op)) for op in row.get("ops") or ())}


def _accuracy(plan: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """How right the result is, in words; figures come as (label, value, unit-less) pairs."""
    if not notes:
        return
    if "exactness" in plan:
        yield "promised", plan["exactness"]
    yield (
        "compared on",
        f"{notes.get('inputs_compared', 0)} inputs, in float64"
        + (", with the gradients of every parameter" if notes.get("training") else ""),
    )
    yield "bit for bit equal to eager", "yes" if notes.get("bit_equal_to_eager") else "no"
    for name, label in (
        ("max_relative_error", "error, of the result's norm"),
        ("eager_max_abs_error", "eager's own largest error"),
        ("bound", "relative error promised"),
    ):
        if notes.get(name) is not None:
            yield label, f"{notes[name]:.3g}"
    if notes.get(STATUS):
        yield "in the words of PyTorch's dashboard", notes[STATUS]
    if notes.get("exact_places"):
        yield "places equal on whole numbers", notes["exact_places"]


def _tell_measurement(notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How times and memory were measured."""
    timing = notes.get("timing") or {}
    if "ratio" in timing:
        ratio = timing["ratio"]
        yield "speed-up", f"median of {ratio['pairs']} pairs in random order, 95 % interval by bootstrap"
        yield "clock", timing["clock"]
        yield "load of the host", f"{timing['load']:.2f}"
    if notes.get("memory_not_counted"):
        yield "memory of a call", f"not counted: {notes['memory_not_counted']}"


def payback(outcome: Mapping[str, Any]) -> str:
    """After how many calls the time spent compiling is won back, in a sentence; empty without times."""
    values, provenance = _values(outcome), outcome.get("provenance") or {}
    if "speedup" not in values or "compile_time" not in values:
        return ""
    interval = interval_of("speedup", values)
    if interval is not None and is_unseen("speedup", values):
        ends = "{:.3f} to {:.3f}".format(*interval)
        return f"{_sentence(NO_DIFFERENCE)}: the 95 % interval of the speed-up, {ends}, holds 1."
    if quartiles_overlap(provenance):
        return f"{_sentence(NO_DIFFERENCE)}: the times lie inside the noise of one another."
    figure = f"{values['speedup']:.2f}x" + (", {:.2f} to {:.2f}".format(*interval) if interval else "")
    if values["speedup"] <= 1:
        return f"Slower than eager ({figure}): compiling never pays back."
    gain, calls = f"Faster than eager ({figure})", values.get("break_even")
    if calls:
        return f"{gain}: compiling has paid back after {calls:,.0f} calls."
    return (
        f"{gain}, but a call takes no less processor time: compiling is not won back."
        if interval
        else f"{gain}."
    )


def quartiles_overlap(provenance: Mapping[str, Any]) -> bool:
    """Whether a run from before ratios had intervals was inside the noise."""
    notes = provenance.get("compilation") or {}
    return bool(notes.get("inside_the_noise")) and "ratio" not in (notes.get("timing") or {})


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _values(outcome: Mapping[str, Any]) -> Mapping[str, float]:
    return {name: row["value"] for name, row in (outcome.get("metrics") or {}).items()}


def _plots(outcome: Mapping[str, Any], plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    notes = (outcome.get("provenance") or {}).get("compilation") or {}
    if notes.get("timing"):
        yield _spread(notes["timing"])
    values = _values(outcome)
    if "break_even" in values:
        yield _race(values, (notes.get("timing") or {}).get("spent"))
    if "after" in plan and any("seconds" in row for row in plan["after"]):
        yield _costs(plan)


def _spread(timing: Mapping[str, Any]) -> dict[str, Any]:
    """Median with quartiles as bars from the lower to the upper one."""
    rows = [("eager", timing["eager"]), ("ours", timing["ours"])]
    series = [
        {
            "name": name,
            "x": [row["lower"], row["median"]],
            "to": [row["median"], row["upper"]],
            "y": [name, name],
            "text": [
                f"{name}: lower quartile to median of {row['calls']} calls",
                f"{name}: median to upper quartile",
            ],
        }
        for name, row in rows
    ]
    clock = f", {timing['clock']}" if "clock" in timing else ""
    title = f"Latency: quartiles around the median{clock}"
    plot = plot_of(title, "lanes", ("latency", "s"), ("", ""), series)
    return plot | {"lanes": [name for name, _ in rows]}


def _race(values: Mapping[str, float], spent: Mapping[str, float] | None) -> dict[str, Any]:
    """Processor seconds spent until the n-th call has ended, up to twice the break-even.

    Runs from before those were kept have the seconds of the wall's clock.
    """
    ours, eager = values["latency"], values["latency"] * values["speedup"]
    compiling, unit = values["compile_time"], "time spent"
    if spent is not None:
        ours, eager, unit = spent["ours"], spent["eager"], "processor time spent"
        compiling = values.get("compile_cpu_time", compiling)
    calls = max(2.0, 2 * values["break_even"])
    x = [0.0, calls]
    series = [
        {"name": "eager", "x": x, "y": [0.0, calls * eager]},
        {"name": "compile, then ours", "x": x, "y": [compiling, compiling + calls * ours]},
    ]
    return plot_of("When compiling pays back", "line", ("calls", ""), (unit, "s"), series)


def _costs(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds by kind of op, before and after, the most expensive kinds first."""
    sums = [_by_kind(plan[side]) for side in ("before", "after")]
    dearest = sorted(set(sums[0]) | set(sums[1]), key=lambda k: -max(sums[0][k], sums[1][k]))[:MOST_KINDS]
    series = [
        {"name": name, "x": dearest, "y": [side[kind] for kind in dearest]}
        for name, side in zip(("before", "after"), sums, strict=True)
    ]
    return plot_of(
        "Where the time of a call goes, by the ops' prices", "bar", ("op", ""), ("time", "s"), series
    )


def _by_kind(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row["kind"] == "op" and row.get("seconds"):
            found[short(row["target"])] += row["seconds"]
    return found
