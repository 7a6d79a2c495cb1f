"""A parallel step for Perfetto: a process for each node, a thread for each worker's devices, arrows from slot
to slot.

Reads the JSON of an Outcome whose plan says what each worker does when (``timeline``). A worker of several
devices is one thread, since its devices do the same. Messages overlap, so they are asynchronous slices of
their sender's process; one that goes from a stage to the next is also an arrow from the slot that made it to
the slot that waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MICROSECONDS = 1e6
Event = dict[str, Any]
MEMORY = re.compile(r"memory_device_(\d+)")
#: How a message says which slot waits for it: ``F3.0 to stage 1``.
HANDED_ON = re.compile(r"([A-Z]\d+)\.\d+ to stage (\d+)")
#: Of a slot, how far inside its ends an arrow is tied.
INSIDE = 0.01


def plan_events(outcome: Mapping[str, Any]) -> list[Event]:
    """Return every event of a plan's timeline, and the memory of its devices as counters.

    Empty for a plan without a timeline.
    """
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    timeline = plan.get("timeline")
    if not isinstance(timeline, Mapping) or not timeline.get("lanes"):
        return []
    places = _Places(outcome)
    lanes = [{"worker": number, **lane} for number, lane in enumerate(timeline["lanes"])]
    columns: Mapping[str, Any] = timeline.get("messages") or {}
    events = [*_threads(lanes, places), *_slots(lanes, places), *_memory(outcome.get("series") or {}, places)]
    return [*events, *_messages(columns, lanes, places), *_arrows(columns, lanes, places)]


class _Places:
    """The process (node) of a device; devices are numbered node by node."""

    def __init__(self, outcome: Mapping[str, Any]) -> None:
        hardware = (outcome.get("provenance") or {}).get("hardware") or {}
        counts = [
            group["node"]["device_count"]
            for group in hardware.get("groups", ())
            for _ in range(group["count"])
        ]
        self._node_of = [node for node, count in enumerate(counts) for _ in range(count)]

    def process(self, device: int) -> int:
        return 1 + (self._node_of[device] if device < len(self._node_of) else 0)

    def of(self, lane: Mapping[str, Any]) -> tuple[int, int]:
        """Process and thread of a worker."""
        return self.process(lane["devices"][0]), 1 + int(lane["worker"])


def _threads(lanes: list[dict[str, Any]], places: _Places) -> Iterator[Event]:
    named = set()
    for lane in lanes:
        process, thread = places.of(lane)
        if process not in named:
            named.add(process)
            yield _meta("process_name", f"node {process - 1}", process, 0)
        devices = lane["devices"]
        words = f"device {devices[0]}" if len(devices) == 1 else f"devices {devices[0]} to {devices[-1]}"
        yield _meta("thread_name", words, process, thread)


def _meta(what: str, name: str, process: int, thread: int) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slots(lanes: list[dict[str, Any]], places: _Places) -> Iterator[Event]:
    for lane in lanes:
        process, thread = places.of(lane)
        for start, end, label in lane["events"]:
            times = {"ts": start * MICROSECONDS, "dur": (end - start) * MICROSECONDS}
            yield {
                "ph": "X",
                "name": str(label),
                "cat": str(label)[:1],
                "pid": process,
                "tid": thread,
                **times,
            }


def _memory(series: Mapping[str, Any], places: _Places) -> Iterator[Event]:
    for name, curve in series.items():
        found = MEMORY.fullmatch(name)
        for time, size in zip(curve["x"], curve["y"], strict=True) if found else ():
            about = {"pid": places.process(int(found[1])) if found else 1, "tid": 0, "args": {"bytes": size}}
            yield {"ph": "C", "name": name, "ts": time * MICROSECONDS, **about}


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = ("kind", "about", "start", "end", "workers", "target", "bytes")
    for row in zip(*(columns.get(name, ()) for name in names), strict=True):
        yield dict(zip(names, row, strict=True))


def _messages(columns: Mapping[str, Any], lanes: list[dict[str, Any]], places: _Places) -> Iterator[Event]:
    by_worker = {lane["worker"]: lane for lane in lanes}
    for number, row in enumerate(_rows(columns)):
        lane = next((by_worker[worker] for worker in row["workers"] if worker in by_worker), None)
        if lane is None:
            continue
        process, thread = places.of(lane)
        about = {"cat": "message", "name": row["kind"], "id": number, "pid": process, "tid": thread}
        args = {"about": row["about"], "bytes": row["bytes"], "workers": row["workers"]}
        yield {"ph": "b", "ts": row["start"] * MICROSECONDS, "args": args, **about}
        yield {"ph": "e", "ts": row["end"] * MICROSECONDS, **about}


def _arrows(columns: Mapping[str, Any], lanes: list[dict[str, Any]], places: _Places) -> Iterator[Event]:
    slots = {
        (lane["worker"], label): (lane, start, end) for lane in lanes for start, end, label in lane["events"]
    }
    for number, row in enumerate(_rows(columns)):
        handed = HANDED_ON.fullmatch(row["about"])
        if handed is None or not row["workers"]:
            continue
        made = slots.get((row["workers"][0], row["about"].split(" ")[0]))
        waits = slots.get((row["target"], f"{handed[1]}.{handed[2]}"))
        if made is None or waits is None:
            continue
        about = {"cat": "message", "name": row["kind"], "id": number}
        for phase, (lane, start, end), share in (("s", made, 1 - INSIDE), ("f", waits, INSIDE)):
            process, thread = places.of(lane)
            moment = (start + share * (end - start)) * MICROSECONDS
            tie = {"bp": "e"} if phase == "f" else {}
            yield {"ph": phase, "ts": moment, "pid": process, "tid": thread, **tie, **about}
