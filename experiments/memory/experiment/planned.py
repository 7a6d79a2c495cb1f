"""A policy's plan for a step on a machine, and what is said of one that cannot be carried out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.core.budget import ENDED_AT
from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, silent
from experiments.core.spec import Result
from experiments.core.units import human
from experiments.hardware.parts import Device
from experiments.memory.interface import DeviceView, MemoryMachine, MemoryPlan, MemoryPolicy
from experiments.memory.interface.machine import PlanEstimate, Split
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.simulator import Simulator
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step


def make_plan(
    step: Step,
    machine: MemoryMachine,
    policy: MemoryPolicy,
    seed: int,
    split: Split | None = None,
    progress: Progress = silent,
) -> MemoryPlan:
    """The policy's plan; ``Infeasible`` at once where some op's own tensors exceed the device."""
    return policy.plan(step, view_of(step, machine, policy, seed, split, progress))


def view_of(
    step: Step,
    machine: MemoryMachine,
    policy: MemoryPolicy,
    seed: int,
    split: Split | None = None,
    progress: Progress = silent,
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

    def estimate(plan: MemoryPlan) -> PlanEstimate:
        progress(0.0, "")
        return simulator.estimate(plan)

    return DeviceView(machine, estimate, np.random.default_rng(seed), simulator.split, progress)


def splitter(step: Step, value: Any, device: Device, capture: Callable[[ModelSource], Step]) -> Split:
    """How ``step`` is had in micro-batches: a model is captured anew by ``capture``, a trace is cut, and its
    parts timed by the roofline of ``device``.
    """
    if isinstance(value, ModelSource):
        return functools.lru_cache(maxsize=4)(lambda parts: capture(replace(value, micro_batches=parts)))
    return functools.partial(in_microbatches, step, device=device)


def infeasible_result(error: Infeasible, plan: MemoryPlan, step: Step, sha256: str) -> Result:
    """What does not fit and by how much, and what the step would take with nothing moved."""
    ended_at = [str(plan.notes[ENDED_AT])] if ENDED_AT in plan.notes else []
    needs = human(step.live_peak, "bytes")
    return Result(
        status="infeasible",
        reason="; ".join([str(error), *ended_at, f"with nothing moved the step needs {needs}"]),
        plan=plan.to_json(),
        workload_sha256=sha256,
        notes={"live_peak": step.live_peak, "largest_op_need": int(step.op_need.max(initial=0))},
    )


def rejected_result(plan: MemoryPlan, faults: list[str]) -> Result:
    return Result.from_violations(faults, plan.to_json())
