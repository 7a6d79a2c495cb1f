"""A policy's plan for a step on a machine, and what is said of one that cannot be carried out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.core.budget import ENDED_AT
from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, silent
from experiments.core.spec import Result
from experiments.core.units import human
from experiments.hardware.parts import Device
from experiments.memory.experiment.names import names_of
from experiments.memory.interface import DeviceView, MemoryMachine, MemoryPlan, MemoryPolicy, Recompute
from experiments.memory.interface.in_place import in_place_ops, out_of_place
from experiments.memory.interface.machine import PlanEstimate, Split
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.interface.pages import with_pages
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator import Simulator
from experiments.workloads.model import ModelSource
from experiments.workloads.paged_states import paged_states
from experiments.workloads.step import Step


def make_plan(
    step: Step,
    machine: MemoryMachine,
    policy: MemoryPolicy,
    seed: int,
    split: Split | None = None,
    progress: Progress = silent,
) -> MemoryPlan:
    """The policy's plan; ``Infeasible`` at once where some op's own tensors exceed the device.

    Where it recomputes, or finds no plan, it plans again with activations that write elsewhere instead of in
    place, as frameworks have them under checkpointing: what is not written over can be made again by itself.
    The faster of the two plans is taken.
    """
    view = view_of(step, machine, policy, seed, split, progress)
    ops = in_place_ops(step)
    plan: MemoryPlan | None = None
    reason: Infeasible | None = None
    try:
        plan = policy.plan(step, view)
    except Infeasible as error:
        reason = error
    if ops and (plan is None or (recomputes(plan) and plan.splits == 1)):
        again = view_of(step, machine, policy, seed, split, progress)
        plan = _faster(plan, _plan_out_of_place(step, ops, policy, again), view)
    if plan is None:
        assert reason is not None
        raise reason
    return _with_pages(plan, step, view.split)


def _with_pages(plan: MemoryPlan, step: Step, split: Split) -> MemoryPlan:
    """The plan with the moves of a paged optimizer's state."""
    if not paged_states(step):
        return plan
    return with_pages(plan, transformed(split(plan.splits) if plan.splits > 1 else step, plan))


def recomputes(plan: MemoryPlan) -> bool:
    """Return whether ``plan`` runs ops again."""
    return any(isinstance(move, Recompute) for move in plan.moves)


def _plan_out_of_place(
    step: Step, ops: tuple[int, ...], policy: MemoryPolicy, view: DeviceView
) -> MemoryPlan | None:
    """The policy's plan for ``step`` with ``ops`` out of place; ``None`` where none recomputes."""

    def estimate(plan: MemoryPlan) -> PlanEstimate:
        return view.estimate(replace(plan, out_of_place=ops if plan.splits == 1 else ()))

    try:
        plan = policy.plan(out_of_place(step, ops), replace(view, estimate=estimate))
    except Infeasible:
        return None
    return replace(plan, out_of_place=ops) if recomputes(plan) and plan.splits == 1 else None


def _faster(plan: MemoryPlan | None, other: MemoryPlan | None, view: DeviceView) -> MemoryPlan | None:
    """The plan whose trial is faster, or as fast in less memory; the first where neither fits."""
    if plan is None or other is None:
        return plan or other
    ours, theirs = view.estimate(plan), view.estimate(other)
    better = (theirs.step_time, theirs.peak_memory) < (ours.step_time, ours.peak_memory)
    return other if better and theirs.fits else plan


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
        return simulator.estimate(_with_pages(plan, step, simulator.split))

    return DeviceView(machine, estimate, np.random.default_rng(seed), simulator.split, progress)


def splitter(step: Step, value: Any, device: Device, capture: Callable[[ModelSource], Step]) -> Split:
    """Return how ``step`` is had in micro-batches.

    A model is captured anew by ``capture``; a trace is cut, and its parts timed by the roofline of
    ``device``.
    """
    if isinstance(value, ModelSource):
        return functools.lru_cache(maxsize=4)(lambda parts: capture(replace(value, micro_batches=parts)))
    return functools.partial(in_microbatches, step, device=device)


def infeasible_result(
    error: Infeasible,
    plan: MemoryPlan,
    step: Step,
    sha256: str,
    least_device: Mapping[str, float] = MappingProxyType({}),
) -> Result:
    """What does not fit and by how much, and what the step would take with nothing moved.

    ``least_device`` is what the plan needs, where that is known: ``memory``, and its ``step_time`` there.
    """
    ended_at = [str(plan.notes[ENDED_AT])] if ENDED_AT in plan.notes else []
    needs = human(step.live_peak, "bytes")
    return Result(
        status="infeasible",
        reason="; ".join([str(error), *ended_at, f"with nothing moved the step needs {needs}"]),
        plan=plan.to_json(),
        workload_sha256=sha256,
        notes={
            "names": names_of(step, plan),
            "live_peak": step.live_peak,
            "largest_op_need": int(step.op_need.max(initial=0)),
            **({} if error.missing is None else {"missing_bytes": error.missing}),
            **({"least_device": dict(least_device)} if least_device else {}),
        },
    )


def rejected_result(plan: MemoryPlan, faults: list[str]) -> Result:
    return Result.from_violations(faults, plan.to_json())
