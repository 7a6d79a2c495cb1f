"""Zero bubble pipelines: weight gradients are slots of their own and fill the time that others wait.

Sources: Qi et al., "Zero Bubble (Almost) Pipeline Parallelism", ICLR'24, sections 2 to 4 (``h1``: ZB-H1;
``h2``: ZB-H2, more forwards before the first backward; ``automatic``: the order searched for the passes
as they are, in ``memory`` times what 1F1B holds) and "Pipeline Parallelism with Controllable Memory",
NeurIPS'24, section 4 (``v``: ZB-V, two chunks that go down and up the devices again, so that the loss turns
round on one device). ``interleaved`` is ZB-H1's rule on the looped chunks of interleaved 1F1B. The papers' B
(input gradient) is a B slot, their W a W slot.

``h2`` and ``automatic`` pay where steps overlap: a device goes on to the next step while others end this one,
and the optimizer's global check is made good afterwards (the plan says ``overlapped``). Measured runs take
the same order and wait at the end of every step.

Left open: which W to postpone when passes are unequal; but for ``automatic`` the order is fixed by counts, as
for equal ones, and ZB-V needs 2p-1 micro-batches to be without gaps. What a micro-batch keeps is counted
until its W, though B could already drop a part (the papers tell M_B from M_W). Not reproduced: the rollback
after a failed check; the integer program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    ParallelPlan,
    PipelineSchedule,
    PlanningEstimate,
    Slot,
    replicated_pipelines,
)
from experiments.parallel.interface.rounds import alternating, devices_by_stage, weights_later
from experiments.parallel.policies.zero_bubble import weight_gaps
from experiments.workloads.layers import LayerGraph

H1, H2, INTERLEAVED, V, AUTOMATIC = "h1", "h2", "interleaved", "v", "automatic"


@dataclass(frozen=True)
class ZeroBubble(PipelineSchedule):
    """Weight gradients, split from input gradients, that wait for the pipeline's gaps."""

    name: ClassVar[str] = "zero_bubble"
    mechanism: ClassVar[str] = "pipeline"

    variant: str = knob(
        "h1",
        "h1: 1F1B order; h2: more forwards first; interleaved: looped chunks; v: two chunks, down and up; "
        "automatic: searched",
        choices=(H1, H2, INTERLEAVED, V, AUTOMATIC),
    )
    memory: float = knob(
        2.0, "micro-batches that a device holds, over 1F1B's most (variant automatic)", low=0.01, high=100.0
    )
    chunks: int = knob(2, "model chunks on each device (variant interleaved)", low=1, high=1024)

    def hosts(self, stages: int) -> tuple[tuple[int, ...], ...]:
        if self.variant == V:
            down = tuple((device,) for device in range(stages))
            return (*down, *reversed(down))
        return devices_by_stage(stages, self._looped_chunks)

    def together(self, stages: int) -> int:
        return stages if self._looped_chunks > 1 else 1

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        if self.variant == V:
            return _down_and_up(stage, stages, micro_batches)
        if self.variant == H2:
            return _twice_as_early(stage, stages, micro_batches)
        warm_up = (self._looped_chunks - 1) * stages + stages - 1 - stage
        slots = alternating(stage, stages, micro_batches, self._looped_chunks, warm_up)
        return weights_later(slots, stage)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        plan = super().place(model, cluster, batch, estimate)
        if self.variant not in (H2, AUTOMATIC):
            return plan
        plan = replace(plan, overlapped=True)
        return plan if self.variant == H2 else self._search(plan, cluster, estimate)

    def _search(self, plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate) -> ParallelPlan:
        """The plan with the order whose simulated step is shortest, the first of equals; ZB-H1's and ZB-H2's
        are tried too where they keep within the memory.
        """
        stages = len(plan.stages)
        limit = max(1, int(self.memory * stages))
        pipelines = len(plan.workers) // stages
        count = plan.micro_batches // pipelines
        tried = [
            replace(plan, workers=replicated_pipelines(orders, pipelines, count))
            for orders in self._candidates(plan, cluster, estimate, limit, count)
        ]
        times = [_step_time(one, estimate) for one in tried]
        best = min(range(len(tried)), key=times.__getitem__)
        notes = {"micro_batches_held_at_most": limit, "step_times_of_orders": times}
        return replace(tried[best], notes=notes)

    def _candidates(
        self, plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate, limit: int, count: int
    ) -> Iterator[list[tuple[Slot, ...]]]:
        """Orders of ``count`` micro-batches of a pipeline, ``limit`` of them held at most."""
        stages = len(plan.stages)
        if limit >= stages:
            yield [weights_later(alternating(d, stages, count, 1, stages - 1 - d), d) for d in range(stages)]
        if limit >= 2 * stages - 1:
            yield [_twice_as_early(device, stages, count) for device in range(stages)]
        problem = weight_gaps.problem_of(plan, cluster, estimate, count, limit)
        for found in weight_gaps.orders(problem):
            estimate.show_life()
            yield list(found)

    @property
    def _looped_chunks(self) -> int:
        return self.chunks if self.variant == INTERLEAVED else 1


def _step_time(plan: ParallelPlan, estimate: PlanningEstimate) -> float:
    """Without end where it does not fit."""
    try:
        return estimate.evaluate(plan).step_time
    except Infeasible:
        return float("inf")


def _twice_as_early(device: int, devices: int, micro_batches: int) -> tuple[Slot, ...]:
    """ZB-H2: the first backward comes in when 2(p-r)-1 forwards are done; 2r weight gradients wait for the
    end.
    """
    slots = alternating(device, devices, micro_batches, 1, 2 * (devices - device) - 2)
    return weights_later(slots, 2 * device)


class _Passes:
    """The slots of one device; each pass takes the next micro-batch of its kind and stage, if
    there is one.
    """

    def __init__(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.slots: list[Slot] = []
        self.done: Counter[tuple[str, int]] = Counter()

    def take(self, kinds: str, stage: int, times: int = 1) -> None:
        for _ in range(times):
            for kind in kinds:
                if self.remaining(kind, stage):
                    self.slots.append(Slot(kind, self.done[kind, stage], stage))
                    self.done[kind, stage] += 1

    def remaining(self, kind: str, stage: int) -> int:
        return self.micro_batches - self.done[kind, stage]


def _down_and_up(device: int, devices: int, micro_batches: int) -> tuple[Slot, ...]:
    """ZB-V: as many forwards down as 1F1B's memory allows, then F, B, W on the two chunks in turn; W's fill
    the end.

    The order is made for 2p-1 micro-batches at least; with fewer, the passes of those that are missing are
    left out.
    """
    down, up = device, 2 * devices - 1 - device
    full = max(micro_batches, 2 * devices - 1)
    passes = _Passes(full)
    passes.take(FORWARD, down, 2 * (devices - device) - 1)
    for _ in range(device):
        passes.take(FORWARD, up)
        passes.take(FORWARD, down)
    passes.take(FORWARD + BACKWARD + WEIGHT, up, devices - device)
    while passes.remaining(FORWARD, up):
        passes.take(FORWARD + BACKWARD + WEIGHT, down)
        passes.take(FORWARD + BACKWARD + WEIGHT, up)
    for _ in range(device):
        passes.take(BACKWARD, down)
        passes.take(BACKWARD, up)
    passes.take(BACKWARD + WEIGHT, down, devices - device)
    passes.take(WEIGHT, up, full)
    passes.take(WEIGHT, down, full)
    return tuple(slot for slot in passes.slots if slot.micro_batch < micro_batches)
