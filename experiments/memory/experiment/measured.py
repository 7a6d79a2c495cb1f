"""One memory run measured: planned on the step as profiled on this host, carried out by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.precision import states_of
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.memory.experiment.figures import model_state_bytes, rates
from experiments.memory.experiment.planned import make_plan, rejected_result, splitter
from experiments.memory.interface import (
    Compress,
    MemoryPlan,
    MemoryPolicy,
    MemoryPool,
    Offload,
    ReactiveMemoryPolicy,
    violations,
)
from experiments.memory.simulator import Simulator
from experiments.sources import model_of, model_step
from experiments.workloads.step import Step


def measure(spec: RunSpec, policy: MemoryPolicy, progress: Progress) -> Result:
    """Plan on the step as profiled on this host, and run the plan with torch.

    The prediction is reported with it.
    """
    source, loaded = model_of(spec.workload)
    if isinstance(policy, ReactiveMemoryPolicy):
        raise BadInput(f"{policy.name} decides while it runs", "spec.mode", "simulated")
    live = registry.load_module("memory", "live")
    session = live.Session(source, part(progress, 0.0, 0.4))
    result = measure_in(session, spec, policy, part(progress, 0.4, 1.0))
    return replace(result, workload_sha256=loaded.sha256)


def measure_in(session: Any, spec: RunSpec, policy: MemoryPolicy, progress: Progress) -> Result:
    """One plan in a ``live.Session``, made for this host with the overrides of ``spec.hardware``."""
    live = registry.load_module("memory", "live")
    source, step = session.source, session.step
    overrides = spec.hardware.get("overrides") if isinstance(spec.hardware, Mapping) else None
    hardware = session.hardware(overrides)
    machine = session.machine(overrides)
    split = splitter(step, source, hardware.device, lambda parts: model_step(parts, hardware.device))
    plan = make_plan(step, machine, policy, spec.seed, split)
    live.refuse(plan)
    whole = session
    if plan.splits > 1:
        session = live.Session(replace(source, micro_batches=plan.splits), part(progress, 0.0, 0.2))
        step = session.step
    faults = violations(plan, step, machine)
    if faults:
        return rejected_result(plan, faults)
    predicted = Simulator(step, machine).run(plan)
    capacity = machine.capacity if "memory_bytes" in (overrides or {}) else None
    seen = session.measure(
        plan, spec.seed, reference=whole, capacity=capacity, progress=part(progress, 0.2, 1.0)
    )
    return Result(
        metrics=figures(seen, step) | rates(step, seen.step_time, spec.workload.options.steps),
        plan=plan.to_json(),
        notes={
            "mode": "measured",
            "device": seen.device,
            "capacity": machine.capacity,
            "library_bytes": seen.library_bytes,
            "losses": list(seen.losses),
            "losses_unplanned": list(seen.unplanned_losses),
            "predicted": {
                "peak_memory": predicted.peak_bytes,
                "step_time": predicted.step_time,
                "ideal_share": whole.step.seconds / predicted.step_time,
            },
            "copy_rates": {way: vars(getattr(machine, way)) for way in ("out", "back")},
            "timing": step.timing,
            **states_of(step.facts),
            **addresses(plan),
            **compression(plan, step, seen.ratios),
        },
    )


def figures(seen: Any, step: Step) -> dict[str, Any]:
    """Return what a ``live.MeasuredPlan`` found, and how that compares with the step without a plan."""
    found = {
        "peak_memory": seen.peak_bytes,
        "persistent_bytes": model_state_bytes(step),
        "step_time": seen.step_time,
        "offloaded_bytes": seen.bytes_out,
        "prefetched_bytes": seen.bytes_back,
    }
    found |= {f"{tier}_peak_memory": most for tier, most in seen.peaks.items() if most}
    if seen.unplanned_time is not None and seen.parameter_difference is not None:
        found |= {
            "ideal_step_time": seen.unplanned_time,
            "ideal_share": seen.ideal_share,
            "max_parameter_difference": seen.parameter_difference,
        }
    return found


def addresses(plan: MemoryPlan) -> dict[str, str]:
    """Return whose addresses were used, where the plan asks for a pool."""
    pool = plan.space
    return {"addresses": f"torch's own; {pool.kind} in the simulator"} if isinstance(pool, MemoryPool) else {}


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
