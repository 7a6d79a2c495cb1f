"""Plots of a profile, in the form of ``experiments.summaries``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.summaries.drawing import plot, points
from webapp.artifacts.profile.ranks import Process
from webapp.artifacts.profile.words import PARTS

#: The same hue for a part on every figure (tokens of the style sheet).
COLORS = {"compute": "plot-3", "communication": "plot-2", "copies": "plot-6", "idle": "plot-8"}
CAUSE_COLORS = {"host wait": "plot-4", "kernel wait": "plot-7", "other": "plot-8"}


def by_device(processes: Sequence[Process]) -> dict[str, Any] | None:
    """A bar for each device of each rank; none for a single one, whose parts stand in words."""
    rows = [(process, row) for process in processes for row in process.told["devices"]]
    if len(rows) < 2:
        return None
    many = len({process.rank for process, _ in rows}) > 1
    names = [f"rank {process.rank}" if many else f"device {row['device']}" for process, row in rows]
    return _stack(f"Time of each {'rank' if many else 'device'}", names, [row for _, row in rows], "")


def by_step(device: Mapping[str, Any]) -> dict[str, Any] | None:
    """A bar for each profiler step of one device."""
    steps = device["steps"]
    if len(steps) < 2:
        return None
    return _stack("Time of each profiler step", [f"step {row['step']}" for row in steps], steps, "")


def _stack(title: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]], x: str) -> dict[str, Any]:
    series = [
        {**points(words, names, [row[key] for row in rows]), "color": COLORS[key]}
        for key, words in PARTS
        if any(row[key] for row in rows)
    ]
    return plot(title, "bar", x, "time (s)", series, stack=True)


def idle_by_cause(process: Process) -> dict[str, Any] | None:
    """A bar for each stream of the rank, by why it stood idle."""
    rows = [row for row in process.told["idle"] if row["kernels"] > 1]
    if not rows:
        return None
    many = len({row["device"] for row in rows}) > 1
    names = [f"{row['device']}: {row['stream']}" if many else f"stream {row['stream']}" for row in rows]
    series = [
        {**points(cause, names, [row[cause] for row in rows]), "color": color}
        for cause, color in CAUSE_COLORS.items()
    ]
    return plot("Idle time of each stream, by cause", "bar", "", "time (s)", series, stack=True)
