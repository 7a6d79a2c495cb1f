"""One memory run: the step, the plan, its check, and the plan carried out by the simulator or by torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.core import registry
from experiments.core.errors import BadInput, Infeasible
from experiments.core.policy import Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.core.units import human
from experiments.hardware import Hardware, resolve
from experiments.memory.interface import (
    Compress,
    DeviceView,
    Machine,
    MemoryPlan,
    MemoryPolicy,
    Offload,
    ReactiveMemoryPolicy,
    SharedLinkPolicy,
    SharedPlans,
    machine_of,
    violations,
)
from experiments.memory.interface.check import FULL
from experiments.memory.interface.machine import Split
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator import Simulation, Simulator, curves, lanes, run_shared
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorded import record
from experiments.memory.simulator.timeline import timeline
from experiments.sources import load, model_step, step_of
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Plan and carry out one step; ``Infeasible`` names the op that does not fit."""
    assert isinstance(policy, MemoryPolicy)
    if spec.mode == "measured":
        return measured(spec, policy, progress)
    hardware = resolve(spec.hardware)
    whole, loaded = step_of(spec.workload, hardware.device, progress)
    step = whole
    progress(0.5, "planning")
    machine = machine_of(hardware)
    reactive = policy if isinstance(policy, ReactiveMemoryPolicy) else None
    plan = MemoryPlan()
    split = splitter(step, loaded.value, lambda source: model_step(source, hardware.device))
    try:
        if isinstance(policy, SharedLinkPolicy):
            return together(step, machine, policy, spec, hardware, loaded.sha256)
        plan = make_plan(step, machine, policy, spec.seed, split)
        if plan.splits > 1:
            step = split(plan.splits)
        faults = violations(plan, step, machine)
        if any(not fault.startswith(FULL) for fault in faults):
            return rejected(plan, faults)
        progress(0.8, "simulating")
        simulation = Simulator(step, machine).steady(plan, reactive)
        step = transformed(step, plan)
        drawn = timeline(record(Prepared(step, machine), plan, simulation, reactive), step, plan)
    except Infeasible as error:
        return too_large(error, plan, step, loaded.sha256)
    metrics = metrics_of(simulation, step, hardware, spec.workload.options.steps)
    if plan.splits > 1:  # with infinite memory nobody would cut the batch
        metrics["ideal_step_time"] = sum(whole.ops.seconds.tolist())
    if metrics["step_time"] > 0:
        metrics["ideal_share"] = metrics["ideal_step_time"] / metrics["step_time"]
    return Result(
        metrics=metrics,
        series=curves(simulation, machine.capacity) | lanes(simulation),
        plan=plan.to_json(),
        workload_sha256=loaded.sha256,
        notes={**notes_of(simulation, step), "timeline": drawn},
    )


def together(
    step: Step, machine: Machine, policy: SharedLinkPolicy, spec: RunSpec, hardware: Hardware, sha256: str
) -> Result:
    """The same step on devices that share a host link: figures, curves and plan of the slowest."""

    def run(shared: SharedPlans) -> list[Simulation]:
        return run_shared(step, shared.plans, machine, shared.discipline)

    view = view_of(step, machine, policy, spec.seed)
    shared = policy.share(step, view, lambda trial: [done.estimate for done in run(trial)])
    faults = [fault for plan in shared.plans for fault in violations(plan, step, machine)]
    if faults:
        return rejected(shared.plans[0], faults)
    simulations = run(shared)
    times = [done.step_time for done in simulations]
    simulation = simulations[slowest := times.index(max(times))]
    return Result(
        metrics=metrics_of(simulation, step, hardware, spec.workload.options.steps),
        series=curves(simulation, machine.capacity) | lanes(simulation),
        plan=shared.plans[slowest].to_json(),
        workload_sha256=sha256,
        notes=notes_of(simulation, step) | {"step_time_by_device": times, "link": shared.discipline},
    )


def measured(spec: RunSpec, policy: MemoryPolicy, progress: Progress) -> Result:
    """Plan on the step as profiled on this host, and run the plan with torch; the prediction stands beside it."""
    loaded = load(spec.workload)
    if not isinstance(loaded.value, ModelSource):
        raise BadInput(f"is {loaded.kind} ({loaded.format})", spec.workload.source, "a model, to be measured")
    if isinstance(policy, ReactiveMemoryPolicy):
        raise BadInput(f"{policy.name} decides while it runs", "spec.mode", "simulated")
    live = registry.load_module("memory", "live")
    session = live.Session(loaded.value, part(progress, 0.0, 0.4))
    result = measured_in(session, spec, policy, part(progress, 0.4, 1.0))
    return replace(result, workload_sha256=loaded.sha256)


def measured_in(session: Any, spec: RunSpec, policy: MemoryPolicy, progress: Progress) -> Result:
    """One plan in a ``live.Session``, made for this host with the overrides of ``spec.hardware``."""
    live = registry.load_module("memory", "live")
    source, step = session.source, session.step
    overrides = spec.hardware.get("overrides") if isinstance(spec.hardware, Mapping) else None
    hardware = session.hardware(overrides)
    machine = replace(machine_of(hardware), synchronous=session.synchronous)
    split = splitter(step, source, lambda parts: model_step(parts, hardware.device))
    plan = make_plan(step, machine, policy, spec.seed, split)
    live.refuse(plan)
    whole = session
    if plan.splits > 1:
        session = live.Session(replace(source, micro_batches=plan.splits), part(progress, 0.0, 0.2))
        step = session.step
    faults = violations(plan, step, machine)
    if faults:
        return rejected(plan, faults)
    predicted = Simulator(step, machine).run(plan)
    seen = session.measure(plan, spec.seed, reference=whole, progress=part(progress, 0.2, 1.0))
    metrics = {
        "peak_memory": seen.peak_bytes,
        "persistent_bytes": step.persistent_bytes,
        "step_time": seen.step_time,
        "offloaded_bytes": seen.bytes_out,
        "prefetched_bytes": seen.bytes_back,
    }
    metrics |= {f"{tier}_peak_memory": most for tier, most in seen.peaks.items() if most}
    if seen.unplanned_time is not None and seen.parameter_difference is not None:
        metrics |= {
            "ideal_step_time": seen.unplanned_time,
            "max_parameter_difference": seen.parameter_difference,
        }
    return Result(
        metrics=metrics | rates(step, seen.step_time, spec.workload.options.steps),
        plan=plan.to_json(),
        notes={
            "mode": "measured",
            "device": seen.device,
            "capacity": machine.capacity,
            "losses": list(seen.losses),
            "losses_unplanned": list(seen.unplanned_losses),
            "predicted": {"peak_memory": predicted.peak_bytes, "step_time": predicted.step_time},
            "timing": step.timing,
            **({"addresses": f"torch's own; {plan.pool.kind} in the simulator"} if plan.pool else {}),
            **compression(plan, step, seen.ratios),
        },
    )


def compression(plan: MemoryPlan, step: Step, ratios: Mapping[int, float]) -> dict[str, Any]:
    """How much smaller tensors were expected to become and became, in all, and how many came out larger."""
    planned = {move.tensor: move.ratio for move in plan.moves if isinstance(move, Compress)}
    planned |= {
        move.tensor: move.ratio for move in plan.moves if isinstance(move, Offload) and move.ratio > 1
    }
    if not planned:
        return {}
    size = {tensor: int(step.tensors.bytes[tensor]) for tensor in planned}
    plain = sum(size.values())
    return {
        "compression": {
            "tensors": len(planned),
            "bytes": plain,
            "planned_ratio": plain / sum(size[t] / ratio for t, ratio in planned.items()),
            "measured_ratio": plain / sum(size[t] / ratios[t] for t in planned),
            "larger_than_planned": sum(ratios[t] < ratio for t, ratio in planned.items()),
        }
    }


def too_large(error: Infeasible, plan: MemoryPlan, step: Step, sha256: str) -> Result:
    """What does not fit and by how much, and what the step would take with nothing moved."""
    return Result(
        status="infeasible",
        reason=f"{error}; with nothing moved the step needs {human(step.live_peak, 'bytes')}",
        plan=plan.to_json(),
        workload_sha256=sha256,
        notes={"live_peak": step.live_peak, "largest_op_need": int(step.op_need.max(initial=0))},
    )


def rejected(plan: MemoryPlan, faults: list[str]) -> Result:
    return Result(status="rejected", reason=faults[0], plan=plan.to_json(), violations=tuple(faults))


def splitter(step: Step, value: Any, capture: Callable[[ModelSource], Step]) -> Split:
    """How ``step`` is had in micro-batches: a model is captured anew by ``capture``, a trace is cut."""
    if isinstance(value, ModelSource):
        return functools.lru_cache(maxsize=4)(lambda parts: capture(replace(value, micro_batches=parts)))
    return functools.partial(in_microbatches, step)


def make_plan(
    step: Step, machine: Machine, policy: MemoryPolicy, seed: int, split: Split | None = None
) -> MemoryPlan:
    """The policy's plan; ``Infeasible`` at once where some op's own tensors exceed the device."""
    return policy.plan(step, view_of(step, machine, policy, seed, split))


def view_of(
    step: Step, machine: Machine, policy: MemoryPolicy, seed: int, split: Split | None = None
) -> DeviceView:
    """What ``policy`` may see; ``Infeasible`` where some op's own tensors exceed the device."""
    simulator = Simulator(step, machine, split)
    need = step.op_need
    if len(need) and int(need.max()) > machine.capacity and not policy.oversubscribes:
        op = int(need.argmax())
        missing = int(need[op]) - machine.capacity
        where = f"op {op} ({step.ops.name[op]}, {step.phase_of(op)})"
        what = f"its own tensors need {need[op]} bytes: {missing} bytes are missing of {machine.capacity}"
        raise Infeasible(what, where, missing)
    return DeviceView(machine, simulator.estimate, np.random.default_rng(seed), simulator.split)


def metrics_of(simulation: Simulation, step: Step, hardware: Hardware, steps: int | None) -> dict[str, float]:
    """Every figure of a simulated step that this step has the facts for."""
    time = simulation.step_time
    metrics = {
        "peak_memory": simulation.peak_bytes,
        "average_memory": simulation.average_bytes,
        "host_peak_memory": simulation.host_peak,
        "persistent_bytes": step.persistent_bytes,
        "step_time": time,
        "ideal_step_time": simulation.ideal_time,
        "stall_time": simulation.stall_time,
        "overlap_time": simulation.overlap_time,
        "execution_time": simulation.execution_time,
        "recompute_time": simulation.recompute_time,
        "offloaded_bytes": simulation.moved["out"],
        "prefetched_bytes": simulation.moved["back"],
    }
    for tier in ("storage", "remote"):
        if simulation.peaks.get(tier):
            metrics[f"{tier}_peak_memory"] = simulation.peaks[tier]
    if simulation.host_busy:
        metrics["host_compute_time"] = simulation.host_time
    if simulation.pool_bytes is not None and simulation.wasted_bytes is not None:
        metrics["pool_bytes"] = simulation.pool_bytes
        metrics["fragmentation"] = simulation.wasted_bytes / hardware.device.memory_bytes
    if simulation.page_faults:
        metrics["page_faults"] = simulation.page_faults
    return metrics | rates(step, time, steps) | utilization(simulation, step, hardware)


def rates(step: Step, time: float, steps: int | None) -> dict[str, float]:
    """Samples and tokens per second, and the job's completion time at ``steps`` steps."""
    found: dict[str, float] = {}
    batch, sequence = step.facts.get("batch"), step.facts.get("sequence")
    if time > 0 and batch:
        found["samples_per_second"] = batch / time
        if sequence:
            found["tokens_per_second"] = batch * sequence / time
    if steps is not None:
        found["jct"] = steps * time
    return found


def utilization(simulation: Simulation, step: Step, hardware: Hardware) -> dict[str, float]:
    """MFU counts the step's FLOPs once; HFU counts recomputed ones too. Peak rate of the dtype with most FLOPs."""
    flops = step.flops
    if not np.isfinite(flops) or flops <= 0 or simulation.step_time <= 0:
        return {}
    by_dtype: dict[str, float] = {}
    for dtype, amount in zip(step.ops.dtype, step.ops.flops.tolist(), strict=True):
        by_dtype[dtype] = by_dtype.get(dtype, 0.0) + amount
    peak = hardware.device.peak(max(by_dtype, key=lambda dtype: by_dtype[dtype])) * simulation.step_time
    return {"mfu": flops / peak, "hfu": (flops + simulation.recompute_flops) / peak}


def notes_of(simulation: Simulation, step: Step) -> dict[str, Any]:
    return {
        "timing": step.timing,
        "timed_on": step.timed_on,
        "stall_by_cause": simulation.stalls,
        "bytes_by_channel": simulation.moved,
        "peak_by_tier": {"device": simulation.peak_bytes, **simulation.peaks},
        "codec_time": simulation.codec_time,
        "first_step_time": (simulation.first or simulation).step_time,
        "live_peak": step.live_peak,
        "largest_op_need": int(step.op_need.max(initial=0)),
    }
