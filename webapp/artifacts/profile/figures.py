"""Plots of a profile, in the form of ``experiments.summaries``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from django.utils.text import Truncator

from experiments.core.units import human
from experiments.summaries.drawing import plot, points
from webapp.artifacts.profile.ranks import Process
from webapp.artifacts.profile.words import PARTS, calls, short

#: The same hue for a part on every figure (tokens of the style sheet).
COLORS = {"compute": "plot-3", "communication": "plot-2", "copies": "plot-6", "idle": "plot-8"}
#: So many names are drawn, with so many letters each.
MOST_NAMES, LONGEST_NAME = 12, 32
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


def by_name(process: Process) -> dict[str, Any] | None:
    """A bar for each of the kernels, or operators of the host, that take most."""
    told, on_device = process.told, bool(process.told["devices"])
    noun, key = ("kernels", "seconds") if on_device else ("operators", "host")
    rows = [row for row in told.get(noun) or () if row[key]][:MOST_NAMES]
    if not rows:
        return None
    names = [escape(Truncator(short(row["name"])).chars(LONGEST_NAME), quote=False) for row in rows]
    hover = [
        f"{escape(row['name'], quote=False)}<br>{human(row[key], 's')}, {calls(row['count'])}" for row in rows
    ]
    series = points(noun, [row[key] for row in rows], names)
    look = {"color": COLORS["compute"], "hover_only": True, "hover": hover}
    lanes = list(dict.fromkeys(names))
    return plot(f"The {noun} that take most", "rows", "time (s)", "", [{**series, **look}], lanes=lanes)


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
