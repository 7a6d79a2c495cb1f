"""Carries out a run of a policy that divides one model: sizes, chips and a phase in, times out."""

from __future__ import annotations

from typing import Any

from experiments.core.errors import BadInput, Infeasible
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.core.units import human
from experiments.hardware import Hardware, resolve
from experiments.models.served import sizes_of
from experiments.serving.interface.partitioning import (
    DividedModel,
    Layout,
    Partition,
    PartitioningPolicy,
    Phase,
    PhaseCost,
    Torus,
)
from experiments.sources import model_of
from experiments.workloads.model import ModelSource

#: Tokens of each prompt, where a spec tells none.
SEQUENCE = 2048


def divide_model(spec: RunSpec, policy: PartitioningPolicy, progress: Progress) -> Result:
    """Choose a division and say what the phase takes in it, by the sheet of the chips."""
    source, loaded = model_of(spec.workload)
    options = spec.workload.options
    sizes = _sizes(source)
    hardware = resolve(spec.hardware)
    if len(hardware.groups) > 1:
        raise BadInput(f"{hardware.name} mixes nodes", "spec.hardware", "equal chips")
    torus = Torus.of(hardware.device_count, sizes.hidden, sizes.inner, hardware.device)
    phase = policy.carried_out(options.batch or 1, options.sequence or SEQUENCE)
    partition = policy.partition(sizes, torus, phase)
    cost = policy.cost(sizes, partition, phase)
    _refuse_too_large(cost, hardware, sizes.name)
    return Result(
        metrics={
            "latency": cost.seconds,
            "mfu": cost.mfu,
            "mbu": cost.mbu,
            "communication_time": cost.communication,
            "max_context": policy.max_context(sizes, partition, phase.batch),
            "peak_memory_per_device": cost.weights + cost.kv,
        },
        plan={
            "torus": {"x": torus.x, "yz": torus.yz, "y": torus.y},
            "layout": partition.layout.name,
            "attention": partition.attention,
            "seconds": {
                "compute": cost.compute,
                "memory": cost.memory,
                "communication": cost.communication,
            },
            "bytes": {"weights": cost.weights, "kv": cost.kv},
            "chip": _chip(sizes, torus),
            "compared": _divisions(policy, sizes, torus, phase, hardware.device.memory_bytes),
        },
        workload_sha256=loaded.sha256,
        notes={
            "hardware": hardware.to_json(),
            "warnings": list(hardware.warnings),
            "layout": partition.layout.name,
            "attention": partition.attention,
        },
    )


def _chip(sizes: DividedModel, torus: Torus) -> dict[str, int]:
    """What a chip keeps of a matrix of hidden x inner, where it is divided over both axes of the torus."""
    return {
        "hidden": sizes.hidden,
        "inner": sizes.inner,
        "hidden_each": -(-sizes.hidden // torus.x),
        "inner_each": -(-sizes.inner // torus.yz),
    }


def _divisions(
    policy: PartitioningPolicy, sizes: DividedModel, torus: Torus, phase: Phase, memory: float
) -> list[dict[str, Any]]:
    """Every division that the policy chose from, the fastest first; sending shows where it is not hidden."""
    rows = []
    for name, attention in policy.options():
        cost = policy.cost(sizes, Partition(Layout(name, torus), attention), phase)
        busy = min(cost.seconds, max(cost.compute, cost.memory))
        rows.append(
            {
                "layout": name,
                "attention": attention,
                "seconds": cost.seconds,
                "working_seconds": busy,
                "sending_seconds": cost.seconds - busy,
                "weight_bytes": cost.weights,
                "kv_bytes": cost.kv,
                "fits": cost.weights + cost.kv <= memory,
            }
        )
    return sorted(rows, key=lambda row: (not row["fits"], row["seconds"]))


def _sizes(source: ModelSource) -> DividedModel:
    known = sizes_of(source)
    inner = known.inner or 4 * known.hidden
    sizes = (known.layers, known.hidden, inner, known.heads, known.head_dim, known.kv_heads)
    return DividedModel(known.name, known.parameters, *sizes)


def _refuse_too_large(cost: PhaseCost, hardware: Hardware, name: str) -> None:
    missing = cost.weights + cost.kv - hardware.device.memory_bytes
    if missing > 0:
        held = f"weights of {human(cost.weights, 'bytes')} and {human(cost.kv, 'bytes')} of keys and values"
        raise Infeasible(f"{held} do not fit on a chip", f"model {name}", missing)
