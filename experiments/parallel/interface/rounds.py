"""Micro-batches in rounds over the chunks of a looped pipeline, forward and backward in turn,
weights later.
"""

from __future__ import annotations

from collections.abc import Iterable

from experiments.core.errors import BadInput
from experiments.parallel.interface.plan import BACKWARD, FORWARD, WEIGHT, Slot


def devices_by_stage(devices: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Return the device of each stage: chunk ``c`` of device ``d`` is stage ``c * devices + d``."""
    return tuple((stage % devices,) for stage in range(devices * chunks))


def alternating(device: int, devices: int, micro_batches: int, chunks: int, warm_up: int) -> tuple[Slot, ...]:
    """Return ``warm_up`` forwards, then forwards and backwards in turn, then the other backwards.

    ``devices`` micro-batches at a time go through all chunks of a device before the next ones follow;
    backward passes take the chunks from last to first. Source: Narayanan et al., SC'21, section 2.2.2 and
    figure 4.
    """
    if chunks > 1 and micro_batches % devices:
        what = f"{micro_batches} micro-batches do not make whole rounds over {devices} devices"
        raise BadInput(what, "knobs.micro_batches", f"a multiple of {devices}")
    passes = micro_batches * chunks
    places = [_place(index, devices, chunks) for index in range(passes)]
    forwards = [Slot(FORWARD, micro, chunk * devices + device) for micro, chunk in places]
    backwards = [Slot(BACKWARD, micro, (chunks - 1 - chunk) * devices + device) for micro, chunk in places]
    warm_up = min(warm_up, passes)
    steady = zip(forwards[warm_up:], backwards, strict=False)
    in_turn = [slot for pair in steady for slot in pair]
    return (*forwards[:warm_up], *in_turn, *backwards[passes - warm_up :])


def _place(index: int, devices: int, chunks: int) -> tuple[int, int]:
    """Micro-batch and chunk of a device's pass number ``index``."""
    a_round, within = divmod(index, devices * chunks)
    chunk, micro = divmod(within, devices)
    return a_round * devices + micro, chunk


def weights_later(slots: Iterable[Slot], waiting: int) -> tuple[Slot, ...]:
    """Return ``slots`` with a W for each B, postponed until more than ``waiting`` are due.

    The oldest one comes as soon as more are due, the rest at the end.
    """
    found: list[Slot] = []
    due: list[Slot] = []
    for slot in slots:
        found.append(slot)
        if slot.kind == BACKWARD:
            due.append(slot._replace(kind=WEIGHT))
        if len(due) > waiting:
            found.append(due.pop(0))
    return (*found, *due)
