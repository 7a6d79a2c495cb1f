"""Lives drawn as lanes, a job or a request each: what both pages have of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.runs.figures import plot_of

#: Lives that are drawn at once.
MOST_LIVES = 30
WAITING = "waiting"

#: A lane, from when to when (s), and the words under the mouse.
Bar = tuple[str, float, float, str]


@dataclass(frozen=True)
class Life:
    """What one of them asked for and when it was there, and its stages in order."""

    name: str
    facts: tuple[tuple[str, str], ...]
    stages: tuple[Mapping[str, str], ...]


def records(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a plan's table by the names of its columns."""
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def lives_plot(
    title: str, lanes: Sequence[str], bars: Mapping[str, Sequence[Bar]], colors: Mapping[str, str]
) -> dict[str, Any] | None:
    """``bars`` by kind, in the order of the legend; ``None`` where nothing lasted."""
    kept = {kind: [bar for bar in rows if bar[2] > bar[1]] for kind, rows in bars.items()}
    series = [_series(kind, rows, colors) for kind, rows in kept.items() if rows]
    if not series:
        return None
    return plot_of(title, "lanes", ("time", "s"), ("", ""), series) | {"lanes": list(lanes)}


def _series(kind: str, rows: Sequence[Bar], colors: Mapping[str, str]) -> dict[str, Any]:
    lanes, starts, ends, words = (list(column) for column in zip(*rows, strict=True))
    color = {"color": colors[kind]} if kind in colors else {}
    return {"name": kind, "x": starts, "to": ends, "y": lanes, "text": words, **color}


def curve_of(name: str, curve: Mapping[str, Any], positive: bool = False) -> dict[str, Any]:
    """A curve; on a logarithmic axis without what has no place there."""
    points = [(x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if x > 0 or not positive]
    return {"name": name, "x": [x for x, _ in points], "y": [y for _, y in points]}
