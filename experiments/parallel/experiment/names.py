"""What the numbers of a parallel plan stand for: the layers that it divides, hands on or computes again."""

from __future__ import annotations

from experiments.parallel.interface import ParallelPlan
from experiments.workloads.layers import LayerGraph


def names_of(model: LayerGraph, plan: ParallelPlan) -> dict[str, dict[str, str]]:
    """Return names by number of the layers that ``plan`` mentions; none of a plan that rewrites layers."""
    if plan.rewritten:
        return {}
    edges = (end for stage in plan.stages for end in (stage.begin, stage.end - 1))
    divided = (sharding.layer for sharding in plan.shardings)
    mentioned = {*edges, *divided, *plan.recompute, *plan.checkpoints, *plan.saved}
    return {"layers": {str(layer): model.layer[layer] for layer in sorted(mentioned)}}
