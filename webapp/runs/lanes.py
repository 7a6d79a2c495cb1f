"""Plans that say when things happen, as bars over time: executions of jobs, phases of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: More bars than these are not readable; the first are shown, and it is said.
MOST_BARS = 4000


@dataclass(frozen=True)
class Bar:
    """Something that took from ``start`` to ``end`` (seconds) in a lane; ``kind`` gives its color."""

    lane: str
    kind: str
    start: float
    end: float
    label: str


def lanes_of(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """The plot of a plan's bars in the form that ``plots.js`` draws, or ``None`` for a plan without times."""
    columns = tuple(plan.get("columns") or ())
    if {"job", "start", "end"} <= set(columns):
        return _plot("Jobs over time", "job", list(_stints(columns, plan["rows"])))
    if {"request", "arrival", "admitted", "first_token"} <= set(columns):
        return _plot("Requests over time", "request", list(_requests(columns, plan["rows"])))
    return None


def _stints(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[Bar]:
    for values in rows:
        row = dict(zip(columns, values, strict=True))
        gpus = row.get("gpus", "")
        yield Bar(str(row["job"]), f"{gpus} GPUs", row["start"], row["end"], f"job {row['job']}, {gpus} GPUs")


def _requests(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[Bar]:
    marks = ("arrival", "admitted", "first_token", "last_token")
    names = ("waiting", "prompt", "output")
    for values in rows:
        row = dict(zip(columns, values, strict=True))
        for name, begin, end in zip(names, marks[:-1], marks[1:], strict=True):
            if row.get(begin) is not None and row.get(end) is not None:
                label = f"request {row['request']}: {name}"
                yield Bar(str(row["request"]), name, row[begin], row[end], label)


def _plot(title: str, lane: str, bars: list[Bar]) -> dict[str, Any]:
    shown = bars[:MOST_BARS]
    kinds = list(dict.fromkeys(bar.kind for bar in shown))
    return {
        "title": title,
        "kind": "lanes",
        "x_label": "time",
        "x_unit": "s",
        "y_label": lane,
        "y_unit": "",
        "log": "",
        "lanes": list(dict.fromkeys(bar.lane for bar in sorted(shown, key=lambda bar: bar.start))),
        "sampled": len(bars) if len(bars) > MOST_BARS else None,
        "series": [_series(kind, [bar for bar in shown if bar.kind == kind]) for kind in kinds],
    }


def _series(kind: str, bars: list[Bar]) -> dict[str, Any]:
    return {
        "name": kind,
        "x": [bar.start for bar in bars],
        "to": [bar.end for bar in bars],
        "y": [bar.lane for bar in bars],
        "text": [bar.label for bar in bars],
    }
