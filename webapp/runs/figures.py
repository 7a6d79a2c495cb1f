"""The curves of an outcome gathered into figures: parts of a whole are stacked, numbered devices share one
plot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Points of one curve that are sent to a browser; ``thinning.js`` draws what of them can be seen.
MOST_POINTS = 50_000
#: What goes on while a run lasts: a curve over it is a line, however few its points (losses, staleness). Over
#: anything else (devices, stages, how many updates late) it is bars, unless they are too many.
PROGRESS = ("s", "", "requests/s", "step", "update", "mini-batch", "iteration", "sample", "epoch", "trial")
MOST_BARS = 200
#: The unit of plain numbers, which is not written.
PLAIN = "1"
#: A limit, or what a run is compared with, is drawn into the figure of what it is about.
LIMITS = {
    "capacity": "device_bytes", "best_so_far_random": "best_so_far", "best_so_far_recorded": "best_so_far",
    "loss_one_process": "loss",
}  # fmt: skip
NUMBERED = re.compile(r"(?P<stem>.+?)_(?P<number>\d+)")


def stem_of(name: str) -> str:
    """``device_bytes.gradient`` -> ``device_bytes``, ``memory_device_3`` -> ``memory_device``."""
    found = NUMBERED.fullmatch(name)
    return LIMITS.get(name, found["stem"] if found else name.split(".")[0])


def plot_of(
    title: str, kind: str, x: tuple[str, str], y: tuple[str, str], series: list[dict[str, Any]]
) -> dict[str, Any]:
    """A figure in that form; axes are (label, unit)."""
    labels = {"x_label": x[0], "x_unit": x[1], "y_label": y[0], "y_unit": y[1]}
    return {"title": title, "kind": kind, **labels, "log": "", "sampled": None, "series": series}


def outline(heights: Sequence[float], most: int) -> list[int]:
    """Return the indices of at most ``most`` points: of each stretch the lowest and the highest."""
    if len(heights) <= most:
        return list(range(len(heights)))
    stride = -(-len(heights) // (most // 2))
    stretches = [range(i, min(i + stride, len(heights))) for i in range(0, len(heights), stride)]
    ends = ({min(each, key=heights.__getitem__), max(each, key=heights.__getitem__)} for each in stretches)
    return [index for pair in ends for index in sorted(pair)]


def figures_of(series: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Figures in the form that ``plots.js`` draws, the largest groups first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(series, key=_by_number):
        groups.setdefault(stem_of(name), []).append(name)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple(_figure(stem, names, series) for stem, names in ordered)


def _by_number(name: str) -> tuple[str, int]:
    found = NUMBERED.fullmatch(name)
    return (found["stem"], int(found["number"])) if found else (name, -1)


def _figure(stem: str, names: list[str], series: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    first = series[names[0]]
    x_unit = first.get("x_unit", "s")
    longest = max(len(series[name].get("x") or ()) for name in names)
    return {
        "title": stem.replace("_", " "),
        "kind": "bar" if x_unit not in PROGRESS and longest < MOST_BARS else "line",
        "x_label": "time" if x_unit == "s" else x_unit,
        "x_unit": x_unit if x_unit == "s" else "",
        "y_label": stem.replace("_", " "),
        "y_unit": "" if first.get("unit") == PLAIN else first.get("unit", ""),
        "log": "",
        "sampled": longest if longest > MOST_POINTS else None,
        "series": _with_total(stem, [_curve(stem, name, series) for name in names]),
    }


def _with_total(stem: str, curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The total of stacked parts is a line over them; beside what it is compared with a curve is
    this run's.
    """
    if any("stack" in curve for curve in curves):
        return [curve | {"color": "ink"} if curve["name"] == "total" else curve for curve in curves]
    return [curve | {"name": "this run"} if curve["name"] == "total" else curve for curve in curves]


def _curve(stem: str, name: str, series: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Parts of a stack keep the same points, those of their total."""
    curve = series[name]
    x, y = curve.get("x") or [], curve.get("y") or []
    total = series.get(stem, curve)["y"] if name.startswith(f"{stem}.") else y
    kept = outline(total if len(total) == len(y) else y, MOST_POINTS)
    shape = "hv" if curve.get("x_unit", "s") == "s" else "linear"
    row = {"name": label_of(stem, name), "x": [x[i] for i in kept], "y": [y[i] for i in kept], "shape": shape}
    if name in LIMITS:
        return row | {"dash": "dash", "shape": "linear", "color": "ink"}
    if name.startswith(f"{stem}."):
        return row | {"stack": stem}
    return row


def label_of(stem: str, name: str) -> str:
    """What the legend says: the part's own name, or "total"."""
    if name == stem:
        return "total"
    return name.removeprefix(stem).strip("._").replace("_", " ") if name.startswith(stem) else name
