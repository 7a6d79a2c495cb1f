"""A device for every group of layers, as a plan: model parallelism of any shape, without micro-batches of its
own making.

Groups are runs of layers in topological order; each is a stage, so that branches of a graph run at once on
several devices. A device runs its stages forward in that order and backward in the opposite one, which cannot
deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.parallel.interface import BACKWARD, FORWARD, ParallelPlan, Slot, Stage, Worker


def assigned_plan(
    ends: Sequence[int], devices: Sequence[int], batch: int, micro_batches: int = 1
) -> ParallelPlan:
    """Return the plan in which group ``g`` is computed by ``devices[g]``.

    Its layers go up to ``ends[g]``.
    """
    used = sorted(set(devices))
    stages = tuple(
        Stage(begin, end, (used.index(device),))
        for begin, end, device in zip([0, *ends[:-1]], ends, devices, strict=True)
    )
    mine = {device: [g for g, d in enumerate(devices) if d == device] for device in used}
    return ParallelPlan(
        batch=batch,
        micro_batches=micro_batches,
        mesh=(("model", len(used)),),
        stages=stages,
        workers=tuple(Worker((device,), _order(mine[device], micro_batches)) for device in used),
    )


def _order(groups: Sequence[int], micro_batches: int) -> tuple[Slot, ...]:
    forwards = [Slot(FORWARD, number, group) for number in range(micro_batches) for group in groups]
    backwards = [
        Slot(BACKWARD, number, group) for number in range(micro_batches) for group in reversed(groups)
    ]
    return (*forwards, *backwards)


def merge_layers(costs: Sequence[float], most: int) -> list[int]:
    """Return the ends of at most ``most`` runs of layers.

    The two neighbors that cost least together are merged until so few are left.
    """
    ends = list(range(1, len(costs) + 1))
    sizes = [float(cost) for cost in costs]
    while len(ends) > most:
        first = min(range(len(ends) - 1), key=lambda i: (sizes[i] + sizes[i + 1], i))
        sizes[first] += sizes.pop(first + 1)
        ends.pop(first)
    return ends
