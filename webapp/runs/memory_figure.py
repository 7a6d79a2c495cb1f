"""The figure of a simulated memory step: bytes by kind, what is away when, and what every lane did, on one
time axis.

The JSON is what ``memory.js`` draws; ``thinning.js`` leaves out what cannot be seen, and what is not sent is
counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.trace_events import CHANNEL, NAMES, STACK, Begins, spans_of, trips
from webapp.runs.figures import MOST_POINTS, outline

#: Arcs and marks that are drawn.
MOST_ARCS, MOST_MARKS = 400, 400
#: Digits after the point of a time in seconds.
NANOSECONDS = 9
MARKS = ("recompute", "compress", "decompress", "drop", "on_host", "in_place", "wait")
CHANNELS = ("out", "back", "write", "read", "remote_write", "remote_read", "cpu")
CAUSES = {
    "transfer": "a copy is still coming",
    "space": "space is still taken",
    "synchronization": "the policy waits for a copy",
    "drain": "the last copies of the step",
    "fault": "page faults",
    "host": "the host still computes",
}


@dataclass(frozen=True)
class Lane:
    """A row below the figure: ``busy`` seconds in all, ``share`` of the step."""

    name: str
    busy: float
    share: float
    bytes: float | None = None

    @property
    def percent(self) -> str:
        """For a style: with a point, whatever the language of the page."""
        return f"{min(100.0, 100 * self.share):.2f}"


@dataclass(frozen=True)
class MemoryView:
    """``data`` is drawn; the rest is said in words and tables. ``fullest`` is as the simulator tells it."""

    data: Mapping[str, Any]
    lanes: tuple[Lane, ...]
    stalls: tuple[Lane, ...]
    fullest: Mapping[str, Any] | None
    said: tuple[str, ...]


def memory_view(outcome: Mapping[str, Any]) -> MemoryView | None:
    """``None`` where the outcome is not of a simulated memory step, or is from before ops were timed."""
    series: Mapping[str, Any] = outcome.get("series") or {}
    provenance: Mapping[str, Any] = outcome.get("provenance") or {}
    timeline = provenance.get("timeline")
    if not timeline or "device_bytes" not in series:
        return None
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    end = max(series["device_bytes"]["x"], default=0.0)
    end = max([end, *timeline["compute"]["end"]])
    lanes = _lanes(series, timeline)
    arcs, all_arcs = _arcs(plan, timeline)
    marks, all_marks = _marks(plan, timeline)
    total = series["device_bytes"]
    kept = outline(total["y"], MOST_POINTS)
    data = {
        "end": end,
        "times": [round(total["x"][i], NANOSECONDS) for i in kept],
        "total": [total["y"][i] for i in kept],
        "kinds": _kinds(series, kept),
        "capacity": series["capacity"]["y"][0] if "capacity" in series else None,
        "arcs": arcs,
        "marks": marks,
        "lanes": [{"name": name, "kind": kind, **_columns(spans)} for name, kind, spans in lanes],
        "ops": _ops(timeline["compute"]),
        "peak": (timeline.get("fullest") or {}).get("time"),
    }
    bytes_of = provenance.get("bytes_by_channel") or {}
    return MemoryView(
        data,
        tuple(_lane(name, spans, end, bytes_of) for name, kind, spans in lanes if kind == "channel"),
        _stalls(provenance.get("stall_by_cause") or {}, end),
        timeline.get("fullest"),
        tuple(_sentences(all_arcs, all_marks, timeline["compute"], len(total["y"]))),
    )


def _kinds(series: Mapping[str, Any], kept: Sequence[int]) -> list[dict[str, Any]]:
    """Heights of every kind at the instants of the total that are kept."""
    instants = len(series["device_bytes"]["x"])
    found = [
        {"name": name.removeprefix(STACK).replace("_", " "), "y": [curve["y"][i] for i in kept]}
        for name, curve in series.items()
        if name.startswith(STACK) and len(curve["x"]) == instants
    ]
    return sorted(found, key=lambda kind: -min(kind["y"], default=0.0))


def _arcs(plan: Mapping[str, Any], timeline: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """One for each stay of a tensor on a tier: those of most bytes times seconds where there are too many."""
    names = timeline.get("tensors", {})
    found = []
    for trip in trips(plan, timeline):
        known = names.get(str(trip["tensor"]), {})
        size = known.get("bytes", 0)
        back = "stays away" if trip["back"] is None else f"back at op {trip['back']}"
        name = known.get("name") or f"tensor {trip['tensor']}"
        text = f"{name}: out at op {trip['out']}, {back}"
        found.append(
            {"start": trip["start"], "end": trip["end"], "tier": trip["tier"], "bytes": size, "text": text,
             "module": known.get("module", "")}
        )  # fmt: skip
    kept = sorted(found, key=lambda arc: -arc["bytes"] * (arc["end"] - arc["start"]))[:MOST_ARCS]
    return sorted(kept, key=lambda arc: arc["start"]), len(found)


def _marks(plan: Mapping[str, Any], timeline: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    begins, names = Begins(timeline), timeline.get("tensors", {})
    moves = [move for move in plan.get("moves", ()) if move.get("action") in MARKS] if begins else []
    stride = -(-len(moves) // MOST_MARKS) or 1
    return [
        {"x": begins.of(move["at"]), "kind": move["action"].replace("_", " "), "text": _mark(move, names)}
        for move in moves[::stride]
    ], len(moves)


def _mark(move: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    if move["action"] == "recompute":
        return f"recompute {len(move['ops'])} ops before op {move['at']}"
    about = names.get(str(move.get("tensor")), {}).get("name", "")
    return f"{move['action'].replace('_', ' ')} {about} at op {move['at']}".replace("  ", " ")


Span = Sequence[float]


def _lanes(series: Mapping[str, Any], timeline: Mapping[str, Any]) -> list[tuple[str, str, Sequence[Span]]]:
    """Channels that the machine has and used, in a fixed order, then one lane for each cause of stalls."""
    had = [name.removeprefix(CHANNEL) for name in series if name.startswith(CHANNEL)]
    ordered = [
        *(name for name in CHANNELS if name in had),
        *(n for n in had if n not in (*CHANNELS, "stall")),
    ]
    found: list[tuple[str, str, Sequence[Span]]] = [
        (NAMES.get(name, name.replace("_", " ")), "channel", spans_of(series[CHANNEL + name]))
        for name in ordered
    ]
    return found + [(f"stall: {cause}", cause, spans) for cause, spans in timeline["stalls"].items()]


def _columns(spans: Sequence[Span]) -> dict[str, list[float]]:
    return {"x": [start for start, _ in spans], "to": [end for _, end in spans]}


def _lane(name: str, spans: Sequence[Span], end: float, moved: Mapping[str, float]) -> Lane:
    busy = sum(stop - start for start, stop in spans)
    key = next((key for key, label in NAMES.items() if label == name), name)
    return Lane(name, busy, busy / end if end else 0.0, moved.get(key))


def _stalls(by_cause: Mapping[str, float], end: float) -> tuple[Lane, ...]:
    found = [Lane(cause, time, time / end if end else 0.0) for cause, time in by_cause.items() if time > 0]
    return tuple(sorted(found, key=lambda lane: -lane.busy))


def _ops(compute: Mapping[str, Any]) -> dict[str, Any]:
    return {name: compute[name] for name in ("what", "index", "start", "end", "texts", "name", "module")}


def _sentences(arcs: int, marks: int, compute: Mapping[str, Any], instants: int) -> list[str]:
    said = []
    if instants > MOST_POINTS:
        said.append(f"{MOST_POINTS} of {instants} instants are here, each stretch's lowest and highest")
    if arcs > MOST_ARCS:
        said.append(
            f"{MOST_ARCS} of {arcs} stays away from the device are drawn, those of most bytes and time"
        )
    if marks > MOST_MARKS:
        said.append(f"every {-(-marks // MOST_MARKS)}th of {marks} marks is drawn")
    if len(compute["start"]) < compute["of"]:
        said.append(f"{len(compute['start'])} of {compute['of']} ops are told apart, the longest")
    return said
