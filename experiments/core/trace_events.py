"""An outcome as a trace that Perfetto opens (https://ui.perfetto.dev).

The format is Chrome's trace events in JSON ("Trace Event Format", Google): ``X`` is a slice, ``C`` a counter,
``b`` and ``e`` begin and end something that overlaps others, ``M`` names a lane. Times are microseconds, in
ascending order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.core.plan_trace import plan_events

MICROSECONDS = 1e6
DEVICE = 1
#: The lanes that are always the same; channels and causes of stalls come after them.
COMPUTE, FIRST_LANE = 1, 2
CHANNEL, STACK = "channel.", "device_bytes."
NAMES = {
    "out": "device to host",
    "back": "host to device",
    "write": "to storage",
    "read": "from storage",
    "remote_write": "to remote memory",
    "remote_read": "from remote memory",
    "cpu": "host compute",
}

Event = dict[str, Any]


def trace(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """The trace of an Outcome's JSON: compute, channels, stalls, counters, and what is away from the device.

    Of a parallel step: what every device does (``plan_trace``).
    """
    planned = plan_events(outcome)
    if planned:
        return _whole(outcome, [], planned)
    timeline: Mapping[str, Any] = outcome.get("provenance", {}).get("timeline") or {}
    series: Mapping[str, Any] = outcome.get("series") or {}
    lanes = [
        *_channels(series),
        *((f"stall: {cause}", spans) for cause, spans in timeline.get("stalls", {}).items()),
    ]
    names = {COMPUTE: "compute"} | {FIRST_LANE + i: name for i, (name, _) in enumerate(lanes)}
    events = [*_compute(timeline.get("compute")), *_counters(series)]
    for thread, (name, spans) in enumerate(lanes, FIRST_LANE):
        events += [_slice(name, start, end, thread) for start, end in spans]
    events += _away(outcome.get("plan") or {}, timeline)
    named = [_name_event("thread_name", name, thread) for thread, name in names.items()]
    return _whole(outcome, [_name_event("process_name", _about(outcome), 0), *named], events)


def _about(outcome: Mapping[str, Any]) -> str:
    spec = outcome.get("spec", {})
    return f"{spec.get('policy', '?')} on {spec.get('hardware', '?')}"


def _whole(outcome: Mapping[str, Any], named: list[Event], events: list[Event]) -> dict[str, Any]:
    """Names first, then everything in the order of time."""
    timed = sorted((event for event in events if event["ph"] != "M"), key=lambda event: event["ts"])
    return {
        "traceEvents": [*named, *(event for event in events if event["ph"] == "M"), *timed],
        "displayTimeUnit": "ms",
        "otherData": {
            "about": _about(outcome),
            "spec_id": outcome.get("spec_id", ""),
            "status": outcome.get("status", ""),
        },
    }


def _name_event(what: str, name: str, thread: int) -> Event:
    return {"ph": "M", "name": what, "pid": DEVICE, "tid": thread, "args": {"name": name}}


def _slice(name: str, start: float, end: float, thread: int, **more: Any) -> Event:
    times = {"ts": start * MICROSECONDS, "dur": (end - start) * MICROSECONDS}
    return {"ph": "X", "name": name, "pid": DEVICE, "tid": thread, **times, **more}


def _compute(columns: Mapping[str, Any] | None) -> Iterator[Event]:
    """Ops, reruns and codecs, as ``experiments.memory.simulator.timeline`` writes them."""
    if not columns:
        return
    texts = columns["texts"]
    rows = zip(*(columns[name] for name in ("what", "index", "start", "end", "name", "module")), strict=True)
    for what, index, start, end, name, module in rows:
        more = {"module": texts[module], "index": index}
        yield _slice(texts[name], start, end, COMPUTE, cat=what, args=more)


def spans_of(curve: Mapping[str, Sequence[float]]) -> list[tuple[float, float]]:
    """When a curve of 0 and 1 is 1."""
    found, since = [], None
    for time, height in zip(curve["x"], curve["y"], strict=True):
        if height and since is None:
            since = time
        elif not height and since is not None:
            found.append((since, time))
            since = None
    return found


def _channels(series: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    for name in sorted(series):
        channel = name.removeprefix(CHANNEL)
        if name.startswith(CHANNEL) and channel != "stall":
            yield NAMES.get(channel, channel), spans_of(series[name])


def _counters(series: Mapping[str, Any]) -> Iterator[Event]:
    """One counter with a value for each kind of tensor; any other curve over time is a counter of its own."""
    kinds = {name.removeprefix(STACK): curve for name, curve in series.items() if name.startswith(STACK)}
    if kinds:
        first = next(iter(kinds.values()))
        for row, time in enumerate(first["x"]):
            values = {kind: curve["y"][row] for kind, curve in kinds.items()}
            yield _counter("device bytes", time, values)
    for name, curve in series.items():
        if name.startswith((CHANNEL, STACK)) or (kinds and name == "device_bytes"):
            continue
        if curve.get("x_unit", "s") == "s":
            for time, height in zip(curve["x"], curve["y"], strict=True):
                yield _counter(name, time, {curve.get("unit") or "value": height})


def _counter(name: str, time: float, values: Mapping[str, float]) -> Event:
    return {"ph": "C", "name": name, "pid": DEVICE, "tid": 0, "ts": time * MICROSECONDS, "args": dict(values)}


def _away(plan: Mapping[str, Any], timeline: Mapping[str, Any]) -> Iterator[Event]:
    """From the move that sends a tensor away to the move that brings it back."""
    names = timeline.get("tensors", {})
    for number, trip in enumerate(trips(plan, timeline)):
        name = names.get(str(trip["tensor"]), {}).get("name") or f"tensor {trip['tensor']}"
        about = {"cat": f"on {trip['tier']}", "name": name, "id": number, "pid": DEVICE, "tid": 0}
        yield {"ph": "b", "ts": trip["start"] * MICROSECONDS, "args": {"tensor": trip["tensor"]}, **about}
        yield {"ph": "e", "ts": trip["end"] * MICROSECONDS, **about}


def trips(plan: Mapping[str, Any], timeline: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every offload with the prefetch that follows it.

    What never comes back is away to the end of the step.
    """
    begins = Begins(timeline)
    if not begins:
        return []
    open_trips: dict[int, dict[str, Any]] = {}
    found = []
    for move in plan.get("moves", ()):
        tensor, action = move.get("tensor"), move.get("action")
        if action in ("prefetch", "offload") and tensor in open_trips:
            trip = open_trips.pop(tensor)
            found.append(trip | {"back": move["at"], "end": begins.of(move["at"])})
        if action in ("offload", "place"):
            start = begins.of(move["at"])
            open_trips[tensor] = {
                "tensor": tensor,
                "tier": move.get("tier", "host"),
                "out": move["at"],
                "start": start,
            }
    found += [trip | {"back": None, "end": begins.end} for trip in open_trips.values()]
    return sorted((trip for trip in found if trip["end"] > trip["start"]), key=lambda trip: trip["start"])


class Begins:
    """When each op begins. One that is not among the kept spans begins when the next one that is does."""

    def __init__(self, timeline: Mapping[str, Any]) -> None:
        columns = timeline.get("compute") or {}
        self.end = max(columns.get("end") or [0.0])
        rows = zip(columns.get("what", ()), columns.get("index", ()), columns.get("start", ()), strict=True)
        self.rows = sorted((index, start) for what, index, start in rows if what == "op")

    def __bool__(self) -> bool:
        return bool(self.rows)

    def of(self, op: int) -> float:
        place = bisect_left(self.rows, (op, -1.0))
        return float(self.rows[place][1]) if place < len(self.rows) else float(self.end)
