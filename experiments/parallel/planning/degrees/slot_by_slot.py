"""Seconds of pipelines whose devices have several chunks or unequal blocks: slot after slot, for many plans
at once.

Unequal chunks stall each other, and in the first and last round nothing hides a message, so a sum over
devices falls short. Slots start as in the event simulator, when the one before on the device and the message
are there. Rounds of micro-batches repeat, so only the first few are carried out; what follows takes as long
as the last of them, and no less than the device with most work needs.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from experiments.parallel.interface import FORWARD, Slot
from experiments.parallel.planning.transformers.plan import slots_of
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Rounds of micro-batches over a pipeline that are carried out.
ROUNDS = 3


class _Step(NamedTuple):
    """A slot: its device, its place among durations, and the slot whose message it waits for (-1: none).

    The message comes from a neighbor (0), or from the other end of the pipeline (1). ``sends`` is the place
    of the one that it sends (-1: none).
    """

    device: int
    seconds: int
    waits_for: int
    arrives: int
    sends: int


def distinct_micro_batches(pipeline: Ints, micro_batches: Ints) -> Ints:
    """Return how many micro-batches are carried out; plans with as many have the same slots."""
    found: Ints = np.minimum(micro_batches, ROUNDS * pipeline)
    return found


def pipeline_seconds(
    shape: tuple[int, int, int],
    micro_batches: Ints,
    forward: Floats,
    backward: Floats,
    hops: Floats,
    held: Floats,
) -> Floats:
    """Return the seconds of all slots of pipelines of such a ``shape``.

    That is devices, chunks and ``distinct_micro_batches`` of the plans' ``micro_batches``. ``forward`` and
    ``backward`` are seconds of a micro-batch in each stage, shape (stages, plans), ``hops`` those of a
    message to a neighbor and from end to end, ``held`` those for which it holds up its sender, shape (2,
    plans).
    """
    pipeline, chunks, few = shape
    seconds = np.concatenate([forward, backward])
    found = _carry_out(_steps(pipeline, chunks, few), seconds, hops, held)
    if (micro_batches > few).any():
        fewer = _carry_out(_steps(pipeline, chunks, few - pipeline), seconds, hops, held)
        most = seconds.reshape(2 * chunks, pipeline, -1).sum(0).max(0)
        found = found + (micro_batches - few) * np.maximum((found - fewer) / pipeline, most)
    return found


def _carry_out(steps: tuple[_Step, ...], seconds: Floats, hops: Floats, held: Floats) -> Floats:
    ends: list[Floats] = []
    lanes: dict[int, Floats] = {}
    nothing = np.zeros_like(hops[0])
    for step in steps:
        start = lanes.get(step.device, nothing)
        if step.waits_for >= 0:
            start = np.maximum(start, ends[step.waits_for] + hops[step.arrives])
        ends.append(start + seconds[step.seconds])
        lanes[step.device] = ends[-1] + held[step.sends] if step.sends >= 0 else ends[-1]
    found: Floats = np.max(list(lanes.values()), axis=0)
    return found


@functools.lru_cache(maxsize=512)
def _steps(pipeline: int, chunks: int, micro_batches: int) -> tuple[_Step, ...]:
    """All slots, each behind those that it waits for."""
    stages = pipeline * chunks
    waiting = [list(reversed(slots_of(d, pipeline, chunks, micro_batches))) for d in range(pipeline)]
    found: list[_Step] = []
    done: dict[Slot, int] = {}
    while any(waiting):
        for slots in waiting:
            while slots and ((before := _producer(slots[-1], stages)) is None or before in done):
                slot = slots.pop()
                done[slot] = len(found)
                waits_for = -1 if before is None else done[before]
                found.append(_step(slot, pipeline, stages, waits_for))
    return tuple(found)


def _producer(slot: Slot, stages: int) -> Slot | None:
    """The slot of another device that sends what ``slot`` needs."""
    kind, micro_batch, stage = slot
    stage += -1 if kind == FORWARD else 1
    return Slot(kind, micro_batch, stage) if 0 <= stage < stages else None


def _step(slot: Slot, pipeline: int, stages: int, waits_for: int) -> _Step:
    device, forward = slot.stage % pipeline, slot.kind == FORWARD
    up, down = int(device == 0), int(device == pipeline - 1)
    arrives, sends = (up, down) if forward else (down, up)
    last = stages - 1 if forward else 0
    place = slot.stage if forward else stages + slot.stage
    return _Step(device, place, waits_for, arrives, -1 if slot.stage == last else sends)
