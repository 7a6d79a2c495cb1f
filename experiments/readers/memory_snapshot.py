"""``memory-snapshot``: what ``torch.cuda.memory._dump_snapshot`` writes (a pickle), or the same as JSON.

A snapshot has no ops: it has the allocator's events, each with a stack, and the segments as they were at the
end. So the step has one op for each event that allocates or frees, named by the innermost frame that is not
the allocator's own, and one op at the end, where what is still allocated is last used. Between its two events
nothing is known of a tensor's use. Where events carry the time of day (``time_us``), an op lasts until the
next event; otherwise times are unknown.

A tensor lives from ``alloc`` to ``free_completed`` (its memory is not to be had earlier). What was there
before the first event follows from the end: blocks in use whose allocation was not seen, and frees without an
allocation. Pickles are read as plain data alone (``plain_pickle``). Shape of the dict:
``torch/cuda/memory.py``, ``_snapshot``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import plain_pickle
from experiments.readers.base import Reader, Reading
from experiments.readers.snapshot_events import Event, Segment, events_of, segments_of
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors

#: A profiler's own categories of memory (``torch.profiler._memory_profiler``) and the kinds they are.
CATEGORIES = {
    "parameter": "parameter",
    "optimizer_state": "optimizer_state",
    "gradient": "gradient",
    "input": "input",
}


def _recognizes(head: bytes, name: str) -> bool:
    if head[:1] == b"\x80" or head[:2] in (b"(d", b"}q", b"(l"):
        return b"segments" in head[:4096] or b"device_traces" in head
    return head.lstrip()[:1] == b"{" and (b'"device_traces"' in head or _opens_with_segments(head))


def _opens_with_segments(head: bytes) -> bool:
    return b'"segments"' in head[:200] and b'"total_size"' in head


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    packed = data.lstrip()[:1] != b"{"
    content = plain_pickle.loads(data, name) if packed else jsonio.loads(data, name)
    if not isinstance(content, dict) or not {"segments", "device_traces"} & content.keys():
        raise BadInput("no segments and no device_traces", name, "a snapshot of torch.cuda.memory")
    segments = segments_of(content.get("segments", []), name)
    device, events, devices = events_of(content.get("device_traces", []), name)
    here = [s for s in segments if device < 0 or s.device in (device, None)]
    history = _History(events, here)
    step = _step(name, history, here, device, options)
    return Reading(step, _assumptions(history), _warnings(history, devices, segments))


@dataclass
class _Tensor:
    """``born`` and ``died`` are op numbers: -1 and the number of events where there before and at the end."""

    size: int
    born: int
    died: int
    kind: str
    name: str


class _History:
    """Lifetimes of allocations over the events that allocate or free."""

    def __init__(self, events: Sequence[Event], segments: Sequence[Segment]) -> None:
        completed = {event.address for event in events if event.action == "free_completed"}
        ends = [
            event.action == "free_completed"
            or (event.action == "free_requested" and event.address not in completed)
            for event in events
        ]
        self.rows = [e for e, end in zip(events, ends, strict=True) if end or e.action == "alloc"]
        self.oom = [event for event in events if event.action == "oom"]
        self.reserved = _reserved_bytes(events, segments)
        self.tensors: list[_Tensor] = []
        live: dict[int, _Tensor] = {}
        for index, event in enumerate(self.rows):
            if event.action == "alloc":
                live[event.address] = _Tensor(event.size, index, -1, _kind(event), event.where)
                self.tensors.append(live[event.address])
            elif event.address in live:
                live.pop(event.address).died = index
            else:
                self.tensors.append(_Tensor(event.size, -1, index, "temporary", event.where))
        for tensor in live.values():
            tensor.died = len(self.rows)
        self.unseen = list(_unseen(live, segments))
        self.tensors += self.unseen

    @property
    def has_clock(self) -> bool:
        return bool(self.rows) and all(event.microseconds is not None for event in self.rows)

    def seconds(self) -> list[float]:
        """Until the next event; the end lasts no time. NaN where events have no times."""
        if not self.has_clock:
            return [np.nan] * (len(self.rows) + 1)
        times = [event.microseconds or 0 for event in self.rows]
        return [max(0, after - now) / 1e6 for now, after in itertools.pairwise(times)] + [0.0, 0.0]


def _kind(event: Event) -> str:
    if event.category in CATEGORIES:
        return CATEGORIES[event.category]
    return "activation" if event.phase == "forward" else "temporary"


def _unseen(live: Mapping[int, _Tensor], segments: Sequence[Segment]) -> Iterator[_Tensor]:
    """Blocks in use at the end that no event of the trace allocated: there from before, and there still."""
    for segment in segments:
        for block in segment.blocks:
            if block.active and block.address not in live:
                yield _Tensor(
                    block.requested, -1, -1, "buffer", block.where or "allocated before the history"
                )


def _reserved_bytes(events: Sequence[Event], segments: Sequence[Segment]) -> tuple[int, int]:
    """Bytes of all segments at the end, and at most: the changes of the history undone from the end on."""
    total = sum(segment.size for segment in segments)
    most, now = total, total
    for event in reversed(events):
        if event.action in ("segment_alloc", "segment_map"):
            now -= event.size
        elif event.action in ("segment_free", "segment_unmap"):
            now += event.size
        most = max(most, now)
    return total, most


def _step(
    name: str, history: _History, segments: Sequence[Segment], device: int, options: WorkloadOptions
) -> Step:
    count = len(history.rows) + 1
    inputs: list[list[int]] = [[] for _ in range(count)]
    outputs: list[list[int]] = [[] for _ in range(count)]
    for number, tensor in enumerate(history.tensors):
        if tensor.born >= 0:
            outputs[tensor.born].append(number)
        elif tensor.kind != "buffer":
            inputs[0].append(number)
        if tensor.died >= 0 and number not in inputs[tensor.died]:
            inputs[tensor.died].append(number)
    timing = "trace" if history.has_clock else "none"
    timed_on = f"cuda:{device} (times of day)" if history.has_clock else ""
    step = Step(
        name, _ops(history), _tensors(history), Ragged.of(inputs), Ragged.of(outputs), timing, timed_on
    )
    facts = {**_facts(history, segments, step), "batch": options.batch}
    return Step(name, step.ops, step.tensors, step.inputs, step.outputs, timing, timed_on, facts)


def _ops(history: _History) -> Ops:
    count = len(history.rows) + 1
    zeros = np.zeros(count)
    names = [f"{event.action.partition('_')[0]} {event.where}" for event in history.rows] + ["snapshot"]
    phases = [PHASES.index(event.phase) for event in history.rows] + [len(PHASES) - 1]
    return Ops(
        name=tuple(f"{index}: {text}" for index, text in enumerate(names)),
        target=(*(event.action for event in history.rows), "snapshot"),
        module=(*(event.where for event in history.rows), ""),
        phase=np.array(phases, np.int8),
        seconds=np.array(history.seconds(), np.float64),
        flops=zeros,
        bytes_moved=zeros,
        workspace=np.zeros(count, np.int64),
        dtype=("uint8",) * count,
        view=np.zeros(count, np.bool_),
        random=np.zeros(count, np.bool_),
    )


def _tensors(history: _History) -> Tensors:
    rows = history.tensors
    return Tensors(
        name=tuple(f"{index}: {tensor.name}" for index, tensor in enumerate(rows)),
        bytes=np.array([tensor.size for tensor in rows], np.int64),
        dtype=("uint8",) * len(rows),
        shape=tuple((tensor.size,) for tensor in rows),
        kind=np.array([KINDS.index(tensor.kind) for tensor in rows], np.int8),
        sparsity=np.full(len(rows), np.nan),
    )


def _facts(history: _History, segments: Sequence[Segment], step: Step) -> dict[str, Any]:
    at_end, most = history.reserved
    active = [block for segment in segments for block in segment.blocks if block.active]
    return {
        "source": "memory-snapshot",
        "one_op_per_event": True,
        "events": len(history.rows),
        "peak_bytes": step.live_peak,
        "segments": len(segments),
        "reserved_bytes": at_end,
        "peak_reserved_bytes": most,
        "active_bytes_at_end": sum(block.size for block in active),
        "rounding_bytes_at_end": sum(block.size - block.requested for block in active),
        "largest_free_block": max(
            (block.size for segment in segments for block in segment.blocks if not block.active), default=0
        ),
        "out_of_memory": [{"requested": e.size, "device_free": e.free} for e in history.oom[:100]],
    }


def _assumptions(history: _History) -> tuple[str, ...]:
    told = ["one op for each allocation or free: the snapshot knows no operators, FLOPs or uses in between"]
    if history.has_clock:
        told.append("an op lasts until the allocator's next event")
    if history.unseen or any(tensor.born < 0 for tensor in history.tensors):
        told.append("what was in use without an allocation in the history was there from the start")
    told.append("what is in use at the end is last used by the op named snapshot")
    return tuple(told)


def _warnings(history: _History, devices: int, segments: Sequence[Segment]) -> tuple[str, ...]:
    told = []
    if not history.rows:
        told.append("no history: only what was in use is known (torch.cuda.memory._record_memory_history)")
    if devices > 1:
        told.append(f"history of {devices} devices: the one with most events is read")
    if history.oom:
        told.append(f"{len(history.oom)} allocations failed: out of memory")
    if not segments:
        told.append("no segments: what was in use before the history is unknown")
    return tuple(told)


READER = Reader(
    "memory-snapshot", "step", "memory snapshot of torch.cuda (pickle or JSON)", _recognizes, _read
)
