"""Chimera's order of passes: units in which half of the micro-batches go down and half up, one after another.

Source: Li and Hoefler, SC'21, sections 3.1 and 3.5. A *pass group* has the micro-batches that go forward
together: one, or two where forward is doubled (or backward is halved, which is the same with micro-batches
half as large). Its backward passes take one micro-batch each, one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from experiments.core.errors import BadInput
from experiments.parallel.interface import BACKWARD, FORWARD, Slot

#: How more micro-batches than stages are scheduled.
CONCATENATION, DOUBLING, HALVING = "concatenation", "forward_doubling", "backward_halving"
SCALINGS = (CONCATENATION, DOUBLING, HALVING)

PassGroup = tuple[int, ...]


def pass_groups(devices: int, micro_batches: int, scaling: str) -> list[PassGroup]:
    """Return the micro-batches of each forward pass.

    All go in pairs where backward is halved. Where forward is doubled, as many as make units of
    ``devices`` pairs do; a unit that is left over is a plain one.
    """
    if scaling == CONCATENATION:
        paired = 0
    else:
        unit = 2 * devices if scaling == DOUBLING else 2
        paired = micro_batches // unit * unit
    pairs = list(pairwise(range(paired)))[::2]
    return [*pairs, *((micro_batch,) for micro_batch in range(paired, micro_batches))]


def device_order(device: int, devices: int, groups: Sequence[PassGroup]) -> tuple[Slot, ...]:
    """Return the slots of a device that hosts stage ``device`` down and its mirror image up."""
    if devices % 2:
        raise BadInput(f"{devices} devices cannot hold a pipeline each way", "knobs.stages", "an even number")
    timed = [
        (start, slot)
        for number, group in enumerate(groups)
        for start, slot in _passes(device, devices, number, group)
    ]
    return tuple(slot for _, slot in sorted(timed))


def _passes(device: int, devices: int, number: int, group: PassGroup) -> list[tuple[int, Slot]]:
    """The passes of a group on a device, and the slot in which each starts when all are equally long.

    Even groups of a unit go down, odd ones up.
    """
    unit, within = divmod(number, devices)
    injected, up = divmod(within, 2)
    stage = devices - 1 - device if up else device
    begin = 2 * devices * unit + 2 * injected
    forward = [(begin + stage, Slot(FORWARD, member, stage)) for member in group]
    backward = [(begin + 2 * devices - 1 - stage, Slot(BACKWARD, member, stage)) for member in group]
    return forward + backward
