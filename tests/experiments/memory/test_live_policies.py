"""Every policy that may be measured: torch carries its plan out bit for bit, at the peak that was
simulated.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.options import WorkloadOptions
from experiments.hardware import resolve
from experiments.memory.experiment import make_plan
from experiments.memory.interface import (
    Compress,
    MemoryMachine,
    MemoryPlan,
    MemoryPolicy,
    Offload,
    machine_of,
    violations,
)
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODELS = {
    "mlp": WorkloadOptions(batch=1024, optimizer="sgd"),
    "resnet18": WorkloadOptions(batch=8, image=32, optimizer="sgd"),
    "gpt2-tiny": WorkloadOptions(batch=8, sequence=64, attention="math"),
}
STEPS = 3
LOCAL = resolve("local").device
#: How far gradients of micro-batches may be from the whole batch's: they are sums in another order.
SUMMED_APART = 1e-5
#: Shares of the activations that the device has room for: the first at which a policy's plan fits is carried
#: out.
SHARES = (0.6, 0.75, 0.9, 1.0)
POLICIES = sorted(
    name
    for name in registry.family_policies("memory")
    if "measured" in registry.policy_class("memory", name).modes
)
#: Knobs with which torch can carry a policy's plan out.
KNOBS: dict[str, dict[str, Any]] = {"layrub": {"intra_layer": False}}


#: Captured anew for each number of micro-batches: one model is enough.
MICRO_BATCHES = {"gradient_accumulation": "mlp"}


@dataclass(frozen=True)
class Case:
    """A model captured, its step, and what three plain steps give."""

    traced: Any
    step: Step
    losses: list[float]
    values: list[Any]


def cases() -> Iterator[Case]:
    for zoo, options in MODELS.items():
        yield case_of(ModelSource(f"zoo:{zoo}", zoo=zoo, options=options))


def case_of(source: ModelSource) -> Case:
    from experiments.profiling.capture import trace

    traced = trace(source)
    values = traced.make_inputs(0)
    with torch.no_grad():
        losses = [float(traced.graph_module(*values)) for _ in range(STEPS)]
    return Case(traced, with_roofline_times(traced.step, LOCAL), losses, values)


@pytest.fixture(scope="module")
def models() -> Iterator[list[Case]]:
    """On one thread: small ops on several wait for each other where the host is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield list(cases())
    torch.set_num_threads(threads)


def captured(source: ModelSource) -> Step:
    from experiments.profiling.capture import capture

    return with_roofline_times(capture(source), LOCAL)


def fitted(
    name: str, source: ModelSource, step: Step
) -> tuple[MemoryPlan, MemoryMachine, MemorySimulation] | None:
    """The policy's plan at the smallest of the capacities at which it fits, and what was simulated."""
    activations = step.live_peak - step.persistent_bytes

    @functools.cache
    def split(parts: int) -> Step:
        return captured(replace(source, micro_batches=parts))

    for share in SHARES:
        room = max(step.persistent_bytes + int(share * activations), int(step.op_need.max()))
        on = replace(machine_of(resolve("local")), capacity=room, synchronous=True)
        try:
            policy = registry.create(
                "memory", name, {**registry.policy_class("memory", name).quick, **KNOBS.get(name, {})}
            )
            assert isinstance(policy, MemoryPolicy)
            plan = make_plan(step, on, policy, seed=0, split=split)
            whole = step if plan.splits == 1 else split(plan.splits)
            assert violations(plan, whole, on) == []
            return plan, on, Simulator(whole, on).run(plan)
        except Infeasible:
            continue
    return None


@pytest.mark.parametrize("name", POLICIES)
def test_three_steps_are_bitwise_the_plain_ones_at_the_simulated_peak(models: list[Case], name: str) -> None:
    from experiments.memory.live.runner import StepRunner

    done = moved = 0
    for case in models:
        if name in MICRO_BATCHES and case.traced.source.zoo != MICRO_BATCHES[name]:
            continue
        found = fitted(name, case.traced.source, case.step)
        if found is None:
            continue
        plan, on, simulated = found
        plain = case if plan.splits == 1 else case_of(replace(case.traced.source, micro_batches=plan.splits))
        values = plain.traced.make_inputs(0)
        with StepRunner(plain.traced, plan) as runner:
            losses = [float(runner(values)) for _ in range(STEPS)]
            peak, ratios = runner.ledger.peak, runner.copies.ratios
        assert losses == plain.losses
        for ours, expected in zip(values, plain.values, strict=True):
            torch.testing.assert_close(ours, expected, rtol=0.0, atol=0.0, equal_nan=True)
        if name in MICRO_BATCHES:
            assert losses == pytest.approx(case.losses, rel=SUMMED_APART, abs=0)
        if ratios:
            simulated = Simulator(case.step, on).run(with_ratios(plan, ratios))
        assert peak == pytest.approx(simulated.peak_bytes, rel=1e-3)
        done, moved = done + 1, moved + len(plan.moves) + (plan.splits > 1) + len(plan.order)
    assert done, "its plan fits at one of the shares, on one of the models"
    assert moved or name == "baseline"


def with_ratios(plan: MemoryPlan, ratios: dict[int, float]) -> MemoryPlan:
    """``plan`` with the sizes that tensors were packed to, instead of those that were expected."""
    return replace(
        plan,
        moves=tuple(
            replace(move, ratio=ratios[move.tensor])
            if isinstance(move, Compress) or (isinstance(move, Offload) and move.ratio > 1)
            else move
            for move in plan.moves
        ),
    )
