"""Kernels of a tiled model, and schedules of tuned operators, as their run's page shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.runs.figures import plot_of

#: Kernels in the plot of times (the most expensive), and tasks whose spread is drawn.
MOST_BARS, MOST_SPREADS = 40, 8
#: Times further apart than this are drawn on a logarithmic axis.
WIDE = 100
#: Of a kernel: what it takes or sends, the same of its operators by themselves, and a bound.
SIDES = (("", "as planned"), ("apart_", "its operators by themselves"), ("least_", "at least"))
#: Who computes a tuned operator, as a spread names it.
WHO = {
    "ours": "ours",
    "torch": "torch",
    "prepacked": "torch, weight packed",
    "compiled": "torch.compile",
}
#: Lists of a plan that the page shows in its own way.
SHOWN = ("kernels", "summary", "tasks")


@dataclass(frozen=True)
class KernelRow:
    """One kernel: how its operators are cut, and what it takes next to its operators by themselves."""

    number: int
    operators: tuple[str, ...]
    kinds: str
    domain: str
    tile: str
    levels: tuple[tuple[str, str], ...]
    row: Mapping[str, Any]


@dataclass(frozen=True)
class TaskRow:
    """One tuned operator and its best schedule."""

    name: str
    schedule: tuple[tuple[str, str], ...]
    row: Mapping[str, Any]


@dataclass(frozen=True)
class KernelsView:
    """``connected``: some kernel holds several operators."""

    plots: tuple[Mapping[str, Any], ...]
    kernels: tuple[KernelRow, ...]
    connected: bool
    sums: tuple[Mapping[str, Any], ...]
    tasks: tuple[TaskRow, ...]


def kernels_view(outcome: Mapping[str, Any]) -> KernelsView | None:
    """``None`` where the plan neither cuts operators into tiles nor tunes them."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    kernels = [row for row in plan.get("kernels") or () if isinstance(row, dict) and "tile" in row]
    tasks = [row for row in plan.get("tasks") or () if isinstance(row, dict) and "trials" in row]
    if not kernels and not tasks:
        return None
    connected = any(len(row["operators"]) > 1 for row in kernels)
    sums = tuple(plan.get("summary") or ()) if kernels else ()
    return KernelsView(
        plots=tuple(_plots(kernels, sums, tasks, connected)),
        kernels=tuple(_kernel(number, row) for number, row in enumerate(kernels, 1)),
        connected=connected,
        sums=sums,
        tasks=tuple(TaskRow(row["task"], _pairs(row.get("schedule") or {}), row) for row in tasks),
    )


def _kernel(number: int, row: Mapping[str, Any]) -> KernelRow:
    return KernelRow(
        number,
        tuple(row["operators"]),
        " + ".join(dict.fromkeys(row["kinds"])),
        _sizes(row["domain"]),
        _sizes(row["tile"]),
        _pairs(row.get("levels") or {}),
        row,
    )


def _sizes(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _pairs(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and sizes; what a schedule leaves out (0) is not told."""
    return tuple((name.replace("_", " "), _sizes(value)) for name, value in values.items() if value != 0)


def _plots(
    kernels: Sequence[Mapping[str, Any]],
    sums: Sequence[Mapping[str, Any]],
    tasks: Sequence[Mapping[str, Any]],
    connected: bool,
) -> Iterator[Mapping[str, Any]]:
    sides = [side for side in SIDES if connected or side[0] != "apart_"]
    if kernels:
        yield _times(kernels, sides)
        kinds = [row for row in sums if row["of"] != "all kernels" and not row["of"].startswith("waiting ")]
        series = _bars([row["of"] for row in kinds], kinds, sides, "bytes")
        yield plot_of(
            "Traffic to the device's memory by kind", "bar", ("kind", ""), ("traffic", "bytes"), series
        )
    spread = [row for row in tasks if row.get("spread")][:MOST_SPREADS]
    if spread:
        yield _spreads(spread)


def _times(kernels: Sequence[Mapping[str, Any]], sides: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """Kernels in the order of their launches; of many the most expensive."""
    dearest = sorted(range(len(kernels)), key=lambda n: -kernels[n]["seconds"])[:MOST_BARS]
    chosen = [kernels[number] for number in sorted(dearest)]
    names = [f"{number + 1} {kernels[number]['operators'][0]:.22}" for number in sorted(dearest)]
    series = _bars(names, chosen, sides, "seconds")
    words = f"the {MOST_BARS} dearest of {len(kernels)}" if len(kernels) > MOST_BARS else "in launch order"
    plot = plot_of(f"Time of each kernel, {words}", "bar", ("kernel", ""), ("time", "s"), series)
    seconds = [row["seconds"] for row in chosen]
    wide = min(seconds) > 0 and max(seconds) > WIDE * min(seconds)
    return {**plot, "log": "y" if wide else ""}


def _bars(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], sides: Sequence[tuple[str, str]], what: str
) -> list[dict[str, Any]]:
    return [
        {"name": words, "x": list(names), "y": [row[f"{prefix}{what}"] for row in rows]}
        for prefix, words in sides
    ]


def _spreads(tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of each task a lane for everyone who computes it: from the lower quartile to the median, and to the
    upper one.
    """
    series, lanes = [], []
    for number, task in enumerate(tasks, 1):
        lanes += [f"{number} {WHO[who]}" for who in task["spread"]]
    for who, words in WHO.items():
        held = [(n, task["spread"][who]) for n, task in enumerate(tasks, 1) if who in task["spread"]]
        if held:
            both = [(f"{n} {words}", row, half) for n, row in held for half in ("lower", "upper")]
            series.append({
                "name": words,
                "x": [row["lower" if half == "lower" else "median"] for _, row, half in both],
                "to": [row["median" if half == "lower" else "upper"] for _, row, half in both],
                "y": [lane for lane, _, _ in both],
                "text": [f"{lane}: {half} quartile and median" for lane, _, half in both],
            })  # fmt: skip
    plot = plot_of(
        "Time of each operator: quartiles around the median", "lanes", ("time", "s"), ("", ""), series
    )
    return {**plot, "lanes": lanes}
