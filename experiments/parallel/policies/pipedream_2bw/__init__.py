"""PipeDream-2BW (Narayanan et al., ICML'21): a pipeline without flushes that keeps two versions of its
weights.

Followed: section 3.1 (gradients of m micro-batches, m at least the depth, make a version; a micro-batch uses
the version before the newest on every stage, forward and backward, so that W(t+1) = W(t) - v grad f(W(t-1))),
section 3.3 (width, depth, micro-batch and recomputation by enumeration, plans that do not fit discarded). The
flush variant of section 3.2 is the policy ``one_f_one_b``. The run's batch is what one update takes over all
pipelines.

Left open by the paper: models whose blocks differ (here stages are cut to be as equal as can be), and loss
scaling in mixed precision. Which version is used is fixed by the micro-batch's number: taking whatever is
newest looks alike, but makes the delay differ from stage to stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Learning,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Training,
    WeightRule,
    stage_bounds,
)
from experiments.parallel.interface.versions import with_versions
from experiments.parallel.planning.stages.one_by_one import replica_order
from experiments.parallel.planning.stages.pipelines import window_plan
from experiments.parallel.policies.pipedream_2bw.double_buffering import ShapeCandidate, best_shape
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class PipeDream2BW(LivePolicy, ParallelPolicy):
    """Width, depth and micro-batch by enumeration; two weight versions, a staleness of one update."""

    name: ClassVar[str] = "pipedream_2bw"
    mechanism: ClassVar[str] = "asynchronous pipeline"

    updates: int = knob(16, "updates in the window that is carried out", low=1, high=65536)
    depth: int | None = knob(None, "stages; empty: the planner's choice", low=1, high=4096)
    recompute: str = knob("search", "recompute activations", choices=("search", "always", "never"))
    rate: float = knob(0.1, "learning rate (measured)", low=0.0, high=1e3)
    momentum: float = knob(0.0, "momentum (measured)", low=0.0, high=0.999)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        recompute = {"search": None, "always": True, "never": False}[self.recompute]
        best, looked_at, fitting = best_shape(estimate, batch, recompute, self.depth)
        shape = best.shape
        bounds = stage_bounds(estimate, shape.depth)
        micro_batches = shape.every * self.updates
        orders = [replica_order(s, 0, 1, shape.depth - s, micro_batches) for s in range(shape.depth)]
        training = Training(
            Learning(rate=self.rate, momentum=self.momentum), WeightRule("delayed", shape.every)
        )
        plan = window_plan(bounds, orders, cluster, batch, self.updates, training)
        again = tuple(range(len(model))) if shape.recompute else ()
        return with_versions(replace(plan, recompute=again, notes=_notes(best, looked_at, fitting)))


def _notes(best: ShapeCandidate, looked_at: int, fitting: int) -> dict[str, object]:
    """What the planner predicts in steady state, and what it looked at."""
    return {
        "width": best.shape.width,
        "depth": best.shape.depth,
        "micro_batch": best.shape.samples,
        "micro_batch_time": best.micro_batch_time,
        "predicted_samples_per_second": best.samples_per_second,
        "predicted_bytes": best.bytes,
        "candidates": looked_at,
        "fitting": fitting,
    }
