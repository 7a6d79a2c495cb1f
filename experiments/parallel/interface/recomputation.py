"""Which layers of a stage are computed again together."""

from __future__ import annotations

from experiments.parallel.interface.plan import ParallelPlan


def recomputed_runs(plan: ParallelPlan, stage: int) -> list[range]:
    """Return runs of neighboring layers of ``stage`` that are recomputed together.

    A run goes to the next checkpoint, or to the end.

    Each run keeps its inputs.
    """
    again, checkpoints = set(plan.recompute), set(plan.checkpoints)
    end, found = plan.stages[stage].end, []
    begin = None
    for layer in range(plan.stages[stage].begin, end + 1):
        inside = layer < end and layer in again
        if begin is not None and (not inside or layer in checkpoints):
            found.append(range(begin, layer))
            begin = None
        if inside and begin is None:
            begin = layer
    return found
