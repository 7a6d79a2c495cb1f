"""One run of the parallel family: a policy places the model, the simulator or torch carries the plan out."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from experiments.core.budget import ENDED_AT
from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.core.policy import Policy
from experiments.core.precision import states_note
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.parallel.experiment.handed_over import communication
from experiments.parallel.experiment.measured import measure_plan
from experiments.parallel.experiment.placed import Placed, place, rejection
from experiments.parallel.experiment.simulated import simulate_plan
from experiments.parallel.interface import ParallelPolicy
from experiments.parallel.simulator import Deadlock, refuse_impossible

__all__ = ["carry_out", "communication", "place"]

#: What a plan is refused with that no hardware carries out.
IMPOSSIBLE = (ImpossiblePlan, Deadlock)


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Simulate on the named cluster, or measure with ``policy.processes`` processes on this host.

    A plan that cannot be carried out is ``rejected`` in both modes, also one that a policy's search asks
    about.
    """
    try:
        placed = place(spec, policy, part(progress, 0.0, 0.6))
    except IMPOSSIBLE as error:
        return rejection(error.violations)
    except Infeasible as error:
        return _explained(Result(status="infeasible", reason=str(error)), policy)
    result = _carried_out(spec, placed, part(progress, 0.6, 1.0))
    return _add_notes(_explained(result, policy), placed)


def _explained(result: Result, policy: Policy) -> Result:
    """The result; where a plan does not fit, its reason says what the policy never divides."""
    whole = cast(ParallelPolicy, policy).keeps_whole
    if result.status != "infeasible" or not whole:
        return result
    return replace(result, reason=f"{result.reason}; {whole}")


def _carried_out(spec: RunSpec, placed: Placed, progress: Progress) -> Result:
    plan, estimate = placed.plan, placed.estimate
    try:
        if spec.mode == "simulated":
            return simulate_plan(spec, plan, estimate)
        refuse_impossible(plan, estimate)
    except IMPOSSIBLE as error:
        return rejection(error.violations, plan)
    except Infeasible as error:
        ended_at = plan.notes.get(ENDED_AT)
        reason = f"{error}; {ended_at}" if ended_at else str(error)
        return Result(status="infeasible", reason=reason)
    return measure_plan(spec, plan, placed.loaded, estimate, progress)


def _add_notes(result: Result, placed: Placed) -> Result:
    loaded = placed.loaded
    notes = {
        "hardware": placed.estimate.cluster.to_json(),
        "assumed": list(loaded.assumed),
        "warnings": [*placed.estimate.cluster.warnings, *loaded.warnings],
        **states_note(placed.estimate.states, placed.estimate.precision),
        **placed.settled.notes,
    }
    return replace(result, workload_sha256=loaded.sha256, notes={**result.notes, **notes})
