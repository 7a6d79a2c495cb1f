"""PipeMare (Yang et al., MLSys'21): a pipeline that never waits and keeps one version of its weights.

Followed: every stage runs a forward and a backward pass in turn, so that stage i of P (from 1) sees its own
update 2(P - i) + 1 micro-batches after it read the weights: a delay of (2(P - i) + 1) / N updates (section
2). T1 divides a stage's rate by its delay, less and less over ``anneal`` updates; T2 (``decay`` > 0) keeps a
moving average of weight changes, one more copy, and runs backward passes with the weights as they were
estimated to be in the forward pass; T3 runs the first ``synchronous`` mini-batches with a flush.

"P" is ``stages``, "N" ``micro_batches``, "K" ``anneal``, "D" ``decay``. Left open by the paper: both of these
for a task at hand. A delay below one update divides no rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from experiments.core.errors import BadInput
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    Learning,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Slot,
    Training,
    WeightRule,
    stage_bounds,
)
from experiments.parallel.interface.open_counts import PipelineShapes, window_updates
from experiments.parallel.interface.versions import with_versions
from experiments.parallel.planning.stages.one_by_one import replica_order
from experiments.parallel.planning.stages.pipelines import shapes_of, window_plan
from experiments.workloads.layers import LayerGraph

#: Mini-batches with a flush where nothing speaks against them.
USUAL = 2


@dataclass(frozen=True)
class PipeMare(LivePolicy, ParallelPolicy):
    """An asynchronous pipeline with one version of weights, rates by delay and corrected backward weights.

    Backward weights are corrected, and training has a warm start.
    """

    name: ClassVar[str] = "pipemare"
    mechanism: ClassVar[str] = "asynchronous pipeline"

    stages: int | None = open_knob("stages", low=1, high=4096)
    micro_batches: int | None = open_knob(
        "micro-batches of a mini-batch, which is an update", low=1, high=65536
    )
    mini_batches: int | None = open_knob("mini-batches in the window that is carried out", low=1, high=65536)
    anneal: int = knob(
        16, "updates over which rates divided by delay return to normal (T1); 0: none", low=0, high=10**9
    )
    decay: float = knob(0.135, "decay of the weight-change average (T2); 0: none", low=0.0, high=0.999)
    synchronous: int | None = open_knob("mini-batches with a flush at first (T3)", low=0, high=65536)
    rate: float = knob(0.1, "learning rate (measured)", low=0.0, high=1e3)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """Every depth, filled; without the flushes, which hold most; both in micro-batches of a sample."""
        for counts in self._shapes(model, cluster, batch).rounds():
            for first in (USUAL, 0) if self.synchronous is None else (self.synchronous,):
                yield [replace(self, stages=s, micro_batches=m, synchronous=first) for s, m in counts]

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        stages, each = self._shapes(model, cluster, batch).deepest()
        synchronous = USUAL if self.synchronous is None else self.synchronous
        mini_batches = self.mini_batches or max(window_updates(stages, each), 2 * synchronous)
        if synchronous > mini_batches:
            what = f"{synchronous} synchronous mini-batches of {mini_batches}"
            raise BadInput(what, "knobs.synchronous", f"at most {mini_batches}")
        bounds = stage_bounds(estimate, stages)
        first, passes = synchronous * each, mini_batches * each
        orders = [self._order(stage, stages, each, first, passes) for stage in range(stages)]
        training = Training(
            Learning(rate=self.rate, anneal=self.anneal, decay=self.decay),
            WeightRule("newest", each, synchronous),
        )
        plan = window_plan(bounds, orders, cluster, batch, mini_batches, training)
        return with_versions(plan, copies=1 if self.decay else 0)

    def _shapes(self, model: LayerGraph, cluster: Hardware, batch: int) -> PipelineShapes:
        return shapes_of(model, cluster, batch, self.stages, self.micro_batches)

    def _order(self, stage: int, stages: int, each: int, first: int, passes: int) -> tuple[Slot, ...]:
        """Flush after each update of the ``first`` micro-batches.

        Then each forward pass comes so many micro-batches before its backward pass.
        """
        flushed = [
            Slot(kind, begin + index, stage)
            for begin in range(0, first, each)
            for kind in (FORWARD, BACKWARD)
            for index in range(each)
        ]
        ahead = 2 * (stages - 1 - stage) + 2
        later = replica_order(stage, 0, 1, ahead, passes - first)
        return (*flushed, *(slot._replace(micro_batch=slot.micro_batch + first) for slot in later))
