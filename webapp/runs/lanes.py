"""Plans that say when things happen, as bars over time: executions of jobs, phases of requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.presentation import pretty

#: More bars than these are not readable; so many are shown, and it is said.
MOST_BARS = 4000
#: Parts of a serving plan with times: what the figure is called, what has a lane, what has a color.
PARTS = {
    "passes": ("Passes over time", "device", "model"),
    "lanes": ("What ran on the device", "model", "model"),
    "copies": ("Copies of keys and values", "goal", "source"),
}


@dataclass(frozen=True)
class Bar:
    """Something that took from ``start`` to ``end`` (seconds) in a lane; ``kind`` gives its color."""

    lane: str
    kind: str
    start: float
    end: float
    label: str


def is_in_columns(value: Any) -> bool:
    """Whether it is many equal records: ``columns`` (their names) and ``rows`` of values."""
    return isinstance(value, Mapping) and {"columns", "rows"} <= set(value)


def lanes_of(plan: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The plots of a plan's bars in the form that ``plots.js`` draws; none of a plan without times."""
    columns = tuple(plan.get("columns") or ())
    found = []
    if {"job", "start", "end"} <= set(columns):
        found.append(_plot("Jobs over time", "job", list(_stints(columns, plan["rows"])), _spread))
    if {"request", "arrival", "admitted", "first_token"} <= set(columns):
        found.append(_plot("Requests over time", "request", list(_requests(columns, plan["rows"])), _spread))
    for name, (title, lane, kind) in PARTS.items():
        part = plan.get(name) or {}
        if is_in_columns(part) and part["rows"] and {lane, kind} <= set(part["columns"]):
            found.append(_plot(title, lane, list(_parts(part, lane, kind))))
    return tuple(found)


def _parts(part: Mapping[str, Any], lane: str, kind: str) -> Iterator[Bar]:
    """A bar for each record: in the lane of its instance, device or model, colored by its kind."""
    for values in part["rows"]:
        row = dict(zip(part["columns"], values, strict=True))
        said = ", ".join(f"{name} {pretty(row[name])}" for name in row if name not in ("start", "end"))
        yield Bar(_say_which(lane, row[lane]), _say_which(kind, row[kind]), row["start"], row["end"], said)


def _say_which(what: str, value: Any) -> str:
    """``device 3``; a name alone."""
    return f"{what} {value}" if isinstance(value, int) else str(value)


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


def _spread(bars: Sequence[Bar]) -> Sequence[Bar]:
    """The bars of every so-many-th lane, each whole, so that few are left and the whole time is covered."""
    step = math.ceil(len(bars) / MOST_BARS)
    kept = {*list(dict.fromkeys(bar.lane for bar in bars))[:: step or 1]}
    return [bar for bar in bars if bar.lane in kept]


def _plot(
    title: str, lane: str, bars: list[Bar], chosen: Callable[[Sequence[Bar]], Sequence[Bar]] = list
) -> dict[str, Any]:
    shown = chosen(bars)[:MOST_BARS]
    kinds = list(dict.fromkeys(bar.kind for bar in shown))
    return {
        "title": title,
        "kind": "lanes",
        "x_label": "time",
        "x_unit": "s",
        "y_label": lane,
        "y_unit": "",
        "log": "",
        "lanes": _in_order(dict.fromkeys(bar.lane for bar in sorted(shown, key=lambda bar: bar.start))),
        "shown": len(shown),
        "sampled": len(bars) if len(bars) > MOST_BARS else None,
        "series": [_series(kind, [bar for bar in shown if bar.kind == kind]) for kind in kinds],
    }


def _in_order(lanes: Iterable[str]) -> list[str]:
    """Numbered things by their numbers; others as they come."""
    found = list(lanes)
    numbers = [lane.rpartition(" ")[2] for lane in found]
    if all(" " in lane for lane in found) and all(number.isdigit() for number in numbers):
        return [lane for _, lane in sorted(zip(map(int, numbers), found, strict=True))]
    return found


def _series(kind: str, bars: list[Bar]) -> dict[str, Any]:
    return {
        "name": kind,
        "x": [bar.start for bar in bars],
        "to": [bar.end for bar in bars],
        "y": [bar.lane for bar in bars],
        "text": [bar.label for bar in bars],
    }
