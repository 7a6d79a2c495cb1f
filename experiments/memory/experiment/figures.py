"""The figures and notes of a simulated step."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.core.precision import states_of
from experiments.hardware import Device, Hardware
from experiments.memory.experiment.bound import swapping_bound
from experiments.memory.interface import MemoryMachine
from experiments.memory.simulator import MemorySimulation
from experiments.workloads.step import Step


def metrics_of(
    simulation: MemorySimulation, step: Step, hardware: Hardware, steps: int | None
) -> dict[str, float]:
    """Every figure of a simulated step that this step has the facts for."""
    time = simulation.step_time
    metrics = {
        "peak_memory": simulation.peak_bytes,
        "average_memory": simulation.average_bytes,
        "host_peak_memory": simulation.host_peak,
        "persistent_bytes": model_state_bytes(step),
        "step_time": time,
        "ideal_step_time": simulation.ideal_time,
        "stall_time": simulation.stall_time,
        "overlap_time": simulation.overlap_time,
        "execution_time": simulation.execution_time,
        "recompute_time": simulation.recompute_time,
        "offloaded_bytes": simulation.moved_bytes["out"],
        "prefetched_bytes": simulation.moved_bytes["back"],
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


def utilization(simulation: MemorySimulation, step: Step, hardware: Hardware) -> dict[str, float]:
    """Return MFU, which counts the step's FLOPs once, and HFU, which counts recomputed ones too.

    The peak rate is that of the dtype with most FLOPs.
    """
    flops = step.flops
    if not np.isfinite(flops) or flops <= 0 or simulation.step_time <= 0:
        return {}
    by_dtype: dict[str, float] = {}
    for dtype, amount in zip(step.ops.dtype, step.ops.flops.tolist(), strict=True):
        by_dtype[dtype] = by_dtype.get(dtype, 0.0) + amount
    peak = hardware.device.peak(max(by_dtype, key=lambda dtype: by_dtype[dtype])) * simulation.step_time
    return {"mfu": flops / peak, "hfu": (flops + simulation.recompute_flops) / peak}


def model_state_bytes(step: Step) -> float:
    """Return the bytes of parameters, gradients and optimizer state, by what the step keeps for each.

    Gradients of different parameters may lie in one storage (a batch of one); they count as what they are
    where all parameters are trained.
    """
    known, parameters = states_of(step.facts), step.facts.get("parameters")
    if not known or parameters is None or "trained_parameters" in step.facts:
        return step.state_bytes
    return float(parameters * sum(known["states"]["bytes_per_parameter"].values()))


def notes_of(
    simulation: MemorySimulation, step: Step, machine: MemoryMachine, device: Device
) -> dict[str, Any]:
    """What a run reports besides its figures."""
    return {
        "timing": step.timing,
        "timed_on": step.timed_on,
        **({"full_peak": True} if step.timing == "roofline" and device.at_full_peak else {}),
        "stall_by_cause": simulation.stalls,
        "bytes_by_channel": simulation.moved_bytes,
        "peak_by_tier": {"device": simulation.peak_bytes, **simulation.peaks},
        "codec_time": simulation.codec_time,
        "first_step_time": (simulation.first or simulation).step_time,
        "live_peak": step.live_peak,
        "largest_op_need": int(step.op_need.max(initial=0)),
        **states_of(step.facts),
        **swapping_bound(step, machine),
    }
