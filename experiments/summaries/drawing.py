"""Cards and plots as JSON, and how a long column is thinned to what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.workloads.step import Floats

MOST_POINTS = 1500


BINS = 40


def card(label: str, value: Any, unit: str = "") -> dict[str, Any]:
    return {"label": label, "value": value if isinstance(value, str | int) else float(value), "unit": unit}


def plot(title: str, kind: str, x: str, y: str, series: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """``x`` and ``y`` are ``label (unit)`` or just a label."""
    axes = {f"{axis}_{part}": text for axis, label in (("x", x), ("y", y)) for part, text in _axis(label)}
    return {"title": title, "kind": kind, **axes, "log": "", "sampled": None, "series": series, **more}


def _axis(label: str) -> tuple[tuple[str, str], tuple[str, str]]:
    name, _, unit = label.partition(" (")
    return ("label", name), ("unit", unit.rstrip(")"))


def points(name: str, x: Any, y: Any, text: list[str] | None = None) -> dict[str, Any]:
    row = {"name": name, "x": np.asarray(x).tolist(), "y": np.asarray(y).tolist()}
    return {**row, "text": text} if text else row


def sample(length: int) -> tuple[Any, int | None]:
    """Indices to show of ``length`` points, and ``length`` itself when some were left out."""
    if length <= MOST_POINTS:
        return np.arange(length), None
    return np.unique(np.linspace(0, length - 1, MOST_POINTS).astype(int)), length


def histogram(title: str, x: str, values: Floats, counted: str, log: bool = False) -> dict[str, Any]:
    finite = values[np.isfinite(values) & ((values > 0) if log else True)]
    if not len(finite):
        return plot(title, "bar", x, counted, [])
    low, high = float(finite.min()), float(finite.max())
    edges = (
        np.geomspace(low, max(high, low * 1.01), BINS + 1)
        if log
        else np.linspace(low, max(high, low + 1), BINS + 1)
    )
    counts, _ = np.histogram(finite, edges)
    return plot(
        title,
        "bar",
        x,
        counted,
        [points(counted, (edges[:-1] + edges[1:]) / 2, counts)],
        log="x" if log else "",
    )
