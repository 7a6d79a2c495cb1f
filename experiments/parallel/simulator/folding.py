"""Which replicas of a data-parallel plan do the same at the same times, so that one of them can stand for all.

Where a plan has one stage and no collectives inside workers, workers meet only in the sums and gathers of all replicas, which
start when the last of them is ready and end for all at once. So workers that compute equally long passes in the same order
are never told apart, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.hardware.roofline import memory_rate
from experiments.parallel.interface import Estimate, ParallelPlan
from experiments.parallel.simulator.stages import StageFigures


def representatives(
    plan: ParallelPlan, estimate: Estimate, figures: StageFigures, slowdown: Sequence[float]
) -> list[int]:
    """For each worker the first one that does the same; ``slowdown`` is how much longer each computes."""
    meets_inside = any(sharding.forward or sharding.backward for sharding in plan.shardings)
    if len(plan.stages) > 1 or meets_inside:
        return list(range(len(plan.workers)))
    rates = {device: memory_rate(device) for device in dict.fromkeys(estimate.devices)}
    first: dict[object, int] = {}
    found = []
    for worker, what in enumerate(plan.workers):
        rate = min(rates[estimate.devices[device]] for device in what.devices)
        key = slowdown[worker], rate, _passes(plan, figures, worker)
        found.append(first.setdefault(key, worker))
    return found


def _passes(plan: ParallelPlan, figures: StageFigures, worker: int) -> tuple[object, ...]:
    """The worker's slots in their order: kind, which of its micro-batches, and how large that is."""
    number: dict[int, int] = {}
    found = []
    for slot in plan.workers[worker].slots:
        place = number.setdefault(slot.micro_batch, len(number))
        part = plan.slices[slot.micro_batch] if plan.slices else figures.samples(slot.micro_batch)
        found.append((slot.kind, place, part))
    return tuple(found)
