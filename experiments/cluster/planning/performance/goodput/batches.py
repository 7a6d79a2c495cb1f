"""How a batch is divided among devices: samples that each takes at once, and how often before it exchanges
gradients (section 3.2 of Pollux, OSDI'21, and its simulator).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

#: Divisions that are whole but for rounding are whole.
SLACK = 1e-8


@dataclass(frozen=True)
class BatchLimits:
    """Between which batches an application trains.

    ``initial``     samples of a step for which its learning rate was chosen, the fewest.
    ``most``        samples of a step, the most.
    ``least_each``  samples that a device takes at once, the fewest.
    ``most_each``   the most, as its memory has it.
    ``most_gpus``   devices on which it can run.
    ``wanted``      samples of a step that are not the scheduler's to choose (0: any between the limits).
    """

    initial: int
    most: int
    least_each: int
    most_each: int
    most_gpus: int = 1 << 30
    wanted: int = 0


class Split(NamedTuple):
    """Each device takes ``each`` samples at once, and does so ``accumulations`` more times in a step."""

    each: int
    accumulations: int


def split(batch: float, gpus: int, limits: BatchLimits) -> Split:
    """Divide a batch among devices, with as few accumulations as their memory allows.

    One device alone measures no noise of gradients unless it accumulates; so it does beyond the initial
    batch.
    """
    each = math.ceil(batch / gpus - SLACK)
    accumulations = math.ceil(each / limits.most_each - SLACK) - 1
    if gpus == 1 and batch > limits.initial:
        accumulations = max(1, accumulations)
    return bounded(each, gpus, accumulations, limits)


def bounded(each: int, gpus: int, accumulations: int, limits: BatchLimits) -> Split:
    """Divide what each device has to do by its accumulations, all together no more than the largest batch."""
    times = accumulations + 1
    at_once = min(math.ceil(each / times - SLACK), limits.most // (gpus * times))
    return Split(max(1, at_once), accumulations)
