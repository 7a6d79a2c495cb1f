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
from experiments.parallel.experiment.names import names_of
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
        return _explained(_too_large(error), policy)
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
        return _too_large(error, str(plan.notes.get(ENDED_AT, "")))
    return measure_plan(spec, plan, placed.loaded, estimate, progress)


def _too_large(error: Infeasible, ended_at: str = "") -> Result:
    """The end of a run whose plan does not fit, with the bytes that the fullest device lacks."""
    notes = {} if error.missing is None else {"missing_bytes": error.missing}
    reason = "; ".join(filter(None, (str(error), ended_at)))
    return Result(status="infeasible", reason=reason, notes=notes)


def _add_notes(result: Result, placed: Placed) -> Result:
    loaded = placed.loaded
    notes = {
        "names": names_of(placed.estimate.model, placed.plan),
        "hardware": placed.estimate.cluster.to_json(),
        "assumed": list(loaded.assumed),
        "warnings": [*placed.estimate.cluster.warnings, *loaded.warnings],
        **states_note(placed.estimate.states, placed.estimate.precision),
        **placed.settled.notes,
    }
    return replace(result, workload_sha256=loaded.sha256, notes={**result.notes, **notes})
