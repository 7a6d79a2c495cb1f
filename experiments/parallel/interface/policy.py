"""What is asked of a parallel policy, and the plain functions with which most of them build their plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.policy import SIZES, STEP, Policy
from experiments.hardware import Hardware
from experiments.parallel.interface.estimate import PlanningEstimate
from experiments.parallel.interface.plan import (
    BACKWARD,
    FORWARD,
    ParallelPlan,
    Slot,
    Stage,
    Synchronization,
    Worker,
)
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer_layers import CAPTURED


@dataclass(frozen=True)
class ParallelPolicy(Policy):
    """A policy that places a model on a cluster."""

    family: ClassVar[str] = "parallel"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("model", "step", "layers"),
        "measured": ("model",),
    }
    #: The layers that ``place`` is given where the model's sizes are enough to know them
    #: (``transformer_layers``).
    layers: ClassVar[str] = CAPTURED
    #: Why it may find no plan for a model that one device does not hold, in a sentence: what stays whole.
    keeps_whole: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Layers that sizes tell need no captured step."""
        super().__init_subclass__()
        cls.reads = STEP if cls.layers == CAPTURED else SIZES

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        """Return the plan for steps of ``batch`` samples over all devices.

        ``BadInput`` when batch, layers or devices do not divide as the policy needs.
        """
        raise NotImplementedError

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """Yield rounds of settings of the knobs that are left open (``None``), the preferred round first.

        Of the first round of which one fits, the fastest is carried out (``planning.settings``). Only this
        policy where it leaves nothing open; a knob that is given keeps its value.
        """
        yield (self,)

    def sync(self) -> Synchronization:
        """Return how replicas synchronize: by default an all-reduce with a barrier."""
        return Synchronization()


@dataclass(frozen=True)
class LivePolicy:
    """What a policy adds whose plans ``live`` can carry out in several processes of this host."""

    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    processes: int = knob(2, "processes of a measured run (a simulated one uses the cluster)", low=1, high=64)


def whole_share(total: int, parts: int, what: str, where: str) -> int:
    """Return ``total / parts``; ``BadInput`` when that is no whole number of at least one."""
    if total % parts or total < parts:
        raise BadInput(
            f"{total} {what} do not divide into {parts} equal parts", where, f"a multiple of {parts} {what}"
        )
    return total // parts


def replicated_stages(bounds: Sequence[tuple[int, int]], replicas: int) -> tuple[Stage, ...]:
    """Return stages of which stage ``s`` is on workers ``s * replicas`` onwards.

    Replicas are neighbors, so that they share fast links.
    """
    return tuple(
        Stage(begin, end, tuple(range(s * replicas, (s + 1) * replicas)))
        for s, (begin, end) in enumerate(bounds)
    )


def replicated_pipelines(
    orders: Sequence[Sequence[Slot]], replicas: int, micro_batches: int
) -> tuple[Worker, ...]:
    """Return one single-device worker for each stage and replica.

    Replica ``r`` takes micro-batches from ``r * micro_batches``.
    """
    return tuple(
        Worker(
            (stage * replicas + replica,),
            tuple(slot._replace(micro_batch=slot.micro_batch + replica * micro_batches) for slot in order),
        )
        for stage, order in enumerate(orders)
        for replica in range(replicas)
    )


def data_parallel_plan(
    model: LayerGraph,
    cluster: Hardware,
    batch: int,
    micro_batches: int,
    synchronization: Synchronization,
    zero: int = 0,
) -> ParallelPlan:
    """Return the plan with the whole model on every device.

    Each runs ``micro_batches`` forward and backward passes, one after another.
    """
    devices = cluster.device_count
    whole_share(batch, devices * micro_batches, "samples", "knobs.micro_batches")
    order = [Slot(kind, index, 0) for index in range(micro_batches) for kind in (FORWARD, BACKWARD)]
    return ParallelPlan(
        batch=batch,
        micro_batches=devices * micro_batches,
        mesh=(("data", devices),),
        stages=replicated_stages([(0, len(model))], devices),
        workers=replicated_pipelines([order], devices, micro_batches),
        zero=zero,
        synchronization=synchronization,
    )


def balanced_cut(costs: Sequence[float], parts: int, where: str) -> list[tuple[int, int]]:
    """Return consecutive non-empty ranges of ``costs`` whose most expensive one is cheapest.

    Linear partition by dynamic programming over (parts, prefix); ties go to the later border.
    """
    count = len(costs)
    if parts > count:
        raise BadInput(f"{count} layers cannot make {parts} stages", where, f"at most {count} stages")
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + float(cost))
    best = [total]
    for made in range(1, parts):
        best.append([_best_border(best[-1], total, made, end)[0] for end in range(count + 1)])
    borders = [count]
    for made in range(parts - 1, 0, -1):
        borders.append(_best_border(best[made - 1], total, made, borders[-1])[1])
    borders = [0, *reversed(borders)]
    return list(itertools.pairwise(borders))


def stage_bounds(estimate: PlanningEstimate, stages: int) -> list[tuple[int, int]]:
    """Return the layers of each stage such that the slowest is as fast as can be.

    Whatever travels between stages does not count.
    """
    return balanced_cut(estimate.layer_seconds.tolist(), stages, estimate.model.name)


def _best_border(before: Sequence[float], total: Sequence[float], made: int, end: int) -> tuple[float, int]:
    """The most expensive part and the border when a last part up to ``end`` follows ``made`` earlier ones."""
    choices = ((max(before[cut], total[end] - total[cut]), -cut) for cut in range(made, end))
    cost, cut = min(choices, default=(float("inf"), 0))
    return cost, -cut
