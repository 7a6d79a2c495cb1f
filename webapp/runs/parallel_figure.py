"""The figure of a simulated parallel step: what every device does when, its messages, its memory, what links
carry.

The JSON is what ``parallel.js`` draws. What is more than can be seen is left out by whole lanes, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.units import human

#: Lanes, slots and messages that are drawn; so many lanes where the rest are replicas of what is drawn
#: already.
MOST_LANES, MOST_SLOTS, MOST_MESSAGES, ENOUGH_LANES = 32, 4000, 2500, 12
#: Of the highest memory; a capacity above that would press the curves flat.
CLEAR = 3.0
#: Rows of the table of workers.
MOST_WORKERS = 64
SLOTS = {"F": "forward", "B": "backward", "W": "weight gradient", "U": "update of weights"}
MEMORY = "memory_device_"
OVERLAPPED = (
    "Each device begins its next step when its own part is done: a step takes as long as the device that is "
    "longest at it"
)


@dataclass(frozen=True)
class WorkerRow:
    """A worker in the table: its devices and stages, and what the step was for each of its devices.

    ``idle`` is the bubble: what the schedule leaves idle even if messages took no time.
    """

    devices: str
    stages: str
    slots: int
    idle: float | None
    peak: float | None
    capacity: float | None
    live: int | None
    sent: tuple[tuple[str, float], ...]

    @property
    def share(self) -> float:
        return self.peak / self.capacity if self.peak and self.capacity else 0.0

    @property
    def percent(self) -> str:
        """For a style: with a point, whatever the language of the page."""
        return f"{min(100.0, 100 * self.share):.2f}"


@dataclass(frozen=True)
class ParallelView:
    """``data`` and ``memory`` are drawn, the rest is said in words and tables."""

    data: Mapping[str, Any]
    memory: Mapping[str, Any] | None
    workers: tuple[WorkerRow, ...]
    worker_count: int
    communication: tuple[Mapping[str, Any], ...]
    said: tuple[str, ...]


def parallel_view(outcome: Mapping[str, Any]) -> ParallelView | None:
    """``None`` where the outcome is not of a simulated parallel step."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    timeline = plan.get("timeline")
    if not isinstance(timeline, Mapping) or not timeline.get("lanes"):
        return None
    series: Mapping[str, Any] = outcome.get("series") or {}
    lanes = _lanes(plan, timeline["lanes"])
    slots, all_slots = _slots(lanes)
    messages, all_messages = _messages(timeline.get("messages") or {}, lanes)
    end = max([0.0, *slots["end"], *messages["end"]])
    rows = [{"worker": lane["worker"], "name": device_names(lane["devices"])} for lane in lanes]
    workers = len(plan.get("workers") or lanes)
    said = _sentences(
        len(lanes), workers, (len(slots["start"]), all_slots), (len(messages["start"]), all_messages)
    )
    return ParallelView(
        {"end": end, "rows": rows, "slots": slots, "messages": messages},
        _memory(plan, series),
        tuple(_worker_rows(plan, series)),
        workers,
        tuple(timeline.get("communication") or ()),
        (*said, *([OVERLAPPED] if plan.get("overlapped") else [])),
    )


def device_names(devices: Sequence[int]) -> str:
    """Devices, or stages: ``3``, ``0-7``, ``0, 4, 8``; of many the first and the number."""
    if len(devices) > 1 and list(devices) == list(range(devices[0], devices[-1] + 1)):
        return f"{devices[0]}-{devices[-1]}"
    if len(devices) > 4:
        return f"{devices[0]}, {devices[1]} ... ({len(devices)})"
    return ", ".join(map(str, devices))


def _lanes(plan: Mapping[str, Any], kept: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One replica of every stage before the others, as many as are read at once; evenly spaced where stages
    are more.
    """
    lanes = [{"worker": place, **lane} for place, lane in enumerate(kept)]
    stages: Sequence[Mapping[str, Any]] = plan.get("stages") or ()
    first = dict.fromkeys(stage["workers"][0] for stage in stages if stage.get("workers"))
    representatives = [lane for lane in lanes if lane["worker"] in first]
    others = [lane for lane in lanes if lane["worker"] not in first]
    stride = -(-len(representatives) // MOST_LANES) or 1
    shown: list[dict[str, Any]] = []
    slots = 0
    for lane in (*representatives[::stride], *others):
        slots += len(lane["events"])
        most = MOST_LANES if lane["worker"] in first else ENOUGH_LANES
        if len(shown) >= most or (shown and slots > MOST_SLOTS):
            break
        shown.append(lane)
    return sorted(shown, key=lambda lane: int(lane["worker"]))


def _slots(lanes: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Any]], int]:
    """Columns over slots; a lane of more than ``MOST_SLOTS`` shows its first."""
    names = ("row", "start", "end", "kind", "micro_batch", "stage", "label")
    rows = [
        (place, start, end, *_parse(str(label)), str(label))
        for place, lane in enumerate(lanes)
        for start, end, label in lane["events"]
    ]
    shown = rows[:MOST_SLOTS]
    return {name: [row[i] for row in shown] for i, name in enumerate(names)}, len(rows)


def _parse(label: str) -> tuple[str, int | None, int | None]:
    """``F3.0`` -> forward, micro-batch 3, stage 0; ``U.2`` -> update, stage 2."""
    numbers = [int(part) if part.isdecimal() else None for part in label[1:].split(".", 1)]
    micro_batch, stage = numbers if len(numbers) == 2 else (None, None)
    return SLOTS.get(label[:1], "other"), micro_batch, stage


def _messages(
    columns: Mapping[str, Any], lanes: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, list[Any]], int]:
    """A bar on the lane of every worker that takes part; the longest messages where there are too many."""
    places = {lane["worker"]: place for place, lane in enumerate(lanes)}
    rows = sorted(_bars(columns, places), key=lambda row: row[1] - row[2])[:MOST_MESSAGES]
    names = ("row", "start", "end", "kind", "bytes", "label")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}, int(columns.get("of", 0))


def _bars(columns: Mapping[str, Any], places: Mapping[int, int]) -> Iterator[tuple[Any, ...]]:
    names = ("kind", "about", "start", "end", "workers", "target", "bytes", "between_nodes")
    for kind, about, start, end, workers, target, size, far in zip(
        *(columns.get(name, ()) for name in names), strict=True
    ):
        way = "between nodes" if far else "inside a node"
        for worker in dict.fromkeys([*workers, target]):
            if worker in places:
                role = " (received)" if worker == target else ""
                yield places[worker], start, end, kind.replace("_", " "), size, f"{about}, {way}{role}"


def _memory(plan: Mapping[str, Any], series: Mapping[str, Any]) -> dict[str, Any] | None:
    """Bytes on one device of each worker over time, with the smallest capacity as a line, or in words where
    it is far.
    """
    curves = {name.removeprefix(MEMORY): curve for name, curve in series.items() if name.startswith(MEMORY)}
    if not curves:
        return None
    ordered = sorted(curves.items(), key=lambda item: (len(item[0]), item[0]))
    lines: list[dict[str, Any]] = [
        {"name": f"device {device}", "x": curve["x"], "y": curve["y"], "shape": "hv"}
        for device, curve in ordered
    ]
    least, highest = _least_capacity(plan), max(max(curve["y"]) for curve in curves.values())
    title = "Memory per device over the step"
    if least is not None and least <= CLEAR * highest:
        end = max(curve["x"][-1] for curve in curves.values())
        limit = {"name": "capacity", "x": [0, end], "y": [least, least], "dash": "dash", "color": "bad"}
        lines.append({**limit, "always": True})
    elif least is not None:
        title += f", of {human(least, 'bytes')}"
    return {
        "title": title, "kind": "line", "x_label": "time", "x_unit": "s",
        "y_label": "device memory", "y_unit": "bytes", "log": "", "sampled": None, "series": lines,
    }  # fmt: skip


def _least_capacity(plan: Mapping[str, Any]) -> float | None:
    return min(plan.get("capacity_by_worker") or (), default=None)


def _worker_rows(plan: Mapping[str, Any], series: Mapping[str, Any]) -> Iterator[WorkerRow]:
    hosted: dict[int, list[int]] = {}
    for stage, row in enumerate(plan.get("stages") or ()):
        for worker in row["workers"]:
            hosted.setdefault(worker, []).append(stage)
    bubbles = (series.get("bubble_by_device") or {}).get("y") or []
    for worker, row in list(enumerate(plan.get("workers") or ()))[:MOST_WORKERS]:
        sent = _at(plan.get("communication_by_worker"), worker) or {}
        yield WorkerRow(
            device_names(row["devices"]),
            device_names(hosted.get(worker, ())),
            len(row["slots"]),
            _at(bubbles, worker),
            _at(plan.get("peak_memory_by_worker"), worker),
            _at(plan.get("capacity_by_worker"), worker),
            _at(plan.get("live_micro_batches"), worker),
            tuple((kind.replace("_", " "), size) for kind, size in sent.items()),
        )


def _at(values: Sequence[Any] | None, place: int) -> Any:
    return values[place] if values and place < len(values) else None


def _sentences(lanes: int, workers: int, slots: tuple[int, int], messages: tuple[int, int]) -> Iterator[str]:
    if lanes < workers:
        yield f"{lanes} of {workers} workers are drawn, one replica of each stage first"
    if slots[0] < slots[1]:
        yield f"the first {slots[0]} of {slots[1]} slots are drawn"
    if messages[0] < messages[1]:
        yield (
            f"{messages[1]} messages in all; drawn are those of these workers, the longest {messages[0]} at "
            "most"
        )
