"""One memory run simulated: the step, the plan, its check, and the plan carried out by the simulator."""

from __future__ import annotations

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.hardware import Hardware, resolve
from experiments.memory.experiment.figures import metrics_of, notes_of
from experiments.memory.experiment.least_device import least_device
from experiments.memory.experiment.names import names_of
from experiments.memory.experiment.planned import (
    infeasible_result,
    make_plan,
    rejected_result,
    splitter,
    view_of,
)
from experiments.memory.interface import (
    MemoryMachine,
    MemoryPlan,
    MemoryPolicy,
    ReactiveMemoryPolicy,
    SharedLinkPolicy,
    SharedPlans,
    machine_of,
    violations,
)
from experiments.memory.interface.check import FULL
from experiments.memory.interface.machine import PlanEstimate
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator import Simulator, curves, lanes, run_shared
from experiments.memory.simulator.recorder import StepRecorder
from experiments.memory.simulator.timeline import timeline
from experiments.sources import model_step, step_of
from experiments.workloads.step import Step


def simulate(spec: RunSpec, policy: MemoryPolicy, progress: Progress) -> Result:
    """The policy's plan on the hardware named, and all that its simulation tells."""
    hardware = resolve(spec.hardware)
    whole, loaded = step_of(spec.workload, hardware.device, progress)
    step = whole
    progress(0.5, "planning")
    machine = machine_of(hardware)
    reactive = policy if isinstance(policy, ReactiveMemoryPolicy) else None
    plan, is_made = MemoryPlan(), False
    split = splitter(
        step,
        loaded.value,
        hardware.device,
        lambda source: model_step(source, hardware.device, part(progress, 0.5, 0.8)),
    )
    try:
        if isinstance(policy, SharedLinkPolicy):
            return simulate_together(
                step, machine, policy, spec, hardware, loaded.sha256, part(progress, 0.5, 0.8)
            )
        plan, is_made = make_plan(step, machine, policy, spec.seed, split, part(progress, 0.5, 0.8)), True
        if plan.splits > 1:
            step = split(plan.splits)
        faults = violations(plan, step, machine)
        if any(not fault.startswith(FULL) for fault in faults):
            return rejected_result(plan, faults)
        progress(0.8, "simulating")
        recorder = StepRecorder()
        simulation = Simulator(step, machine).steady(plan, reactive, recorder)
        step = transformed(step, plan)
        drawn = timeline(recorder.recording, step, plan)
    except ImpossiblePlan as error:
        return rejected_result(plan, list(error.violations))
    except Infeasible as error:
        known = least_device(step, machine, plan, error.missing) if is_made and not reactive else {}
        return infeasible_result(error, plan, step, loaded.sha256, known)
    metrics = metrics_of(simulation, step, hardware, spec.workload.options.steps)
    return Result(
        metrics=beside_ideal(metrics, whole if plan.splits > 1 else None),
        series=curves(simulation, machine.capacity) | lanes(simulation),
        plan=plan.to_json(),
        workload_sha256=loaded.sha256,
        notes={
            **notes_of(simulation, step, machine, hardware.device),
            "timeline": drawn,
            "names": names_of(step, plan),
        },
    )


def beside_ideal(metrics: dict[str, float], whole: Step | None) -> dict[str, float]:
    """Return the figures and the share of the ideal, which for a batch that was cut is the ``whole`` step.

    With infinite memory nobody would cut it.
    """
    found = metrics if whole is None else {**metrics, "ideal_step_time": sum(whole.ops.seconds.tolist())}
    if found["step_time"] > 0:
        found = {**found, "ideal_share": found["ideal_step_time"] / found["step_time"]}
    return found


def simulate_together(
    step: Step,
    machine: MemoryMachine,
    policy: SharedLinkPolicy,
    spec: RunSpec,
    hardware: Hardware,
    sha256: str,
    progress: Progress,
) -> Result:
    """The same step on devices that share a host link: figures, curves and plan of the slowest."""

    def estimate(shared: SharedPlans) -> list[PlanEstimate]:
        progress(0.0, "")
        return [done.estimate for done in run_shared(step, shared.plans, machine, shared.discipline)]

    view = view_of(step, machine, policy, spec.seed, progress=progress)
    shared = policy.share(step, view, estimate)
    faults = [fault for plan in shared.plans for fault in violations(plan, step, machine)]
    if faults:
        return rejected_result(shared.plans[0], faults)
    recorders = [StepRecorder() for _ in shared.plans]
    simulations = run_shared(step, shared.plans, machine, shared.discipline, recorders)
    times = [done.step_time for done in simulations]
    simulation = simulations[slowest := times.index(max(times))]
    recording = recorders[slowest].recording
    plan = shared.plans[slowest]
    changed = transformed(step, plan)
    return Result(
        metrics=metrics_of(simulation, step, hardware, spec.workload.options.steps),
        series=curves(simulation, machine.capacity) | lanes(simulation),
        plan=plan.to_json(),
        workload_sha256=sha256,
        notes={
            **notes_of(simulation, step, machine, hardware.device),
            "step_time_by_device": times,
            "link": shared.discipline,
            "timeline": timeline(recording, changed, plan),
            "names": names_of(changed, plan),
        },
    )
