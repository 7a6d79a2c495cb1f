"""Request traces written by hand, and the toy engine: 10 ms and 1 ms per token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.core import registry
from experiments.core.policy import Policy
from experiments.serving.interface import Engine, Load, LoadCost, ServingPlan, ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.simulator import simulate
from experiments.serving.simulator.paged import simulate_paged
from experiments.workloads.requests import RequestTrace


@dataclass(frozen=True)
class LinearCost(LoadCost):
    """``fixed`` + ``per_token`` x tokens + ``per_kv`` x tokens of KV memory read, in seconds."""

    fixed: float
    per_token: float
    per_kv: float = 0.0

    def stage_time(self, load: Load) -> float | npt.NDArray[np.float64]:
        return self.fixed + self.per_token * load.tokens + self.per_kv * load.kv


TOY = LinearCost(fixed=0.010, per_token=0.001)


def requests(*rows: tuple[float, int, int]) -> RequestTrace:
    """Requests from ``(arrival in ms, prompt, output)`` rows in the order of arrival."""
    arrival, prompt, output = zip(*rows, strict=True)
    milliseconds = np.array(arrival, np.float64) / 1e3
    names = ("",) * len(rows)
    return RequestTrace("by hand", milliseconds, np.array(prompt), np.array(output), names)


class ToyPrice:
    """10 ms and 1 ms per token of steps over blocks."""

    def seconds(self, load: StepLoad, steps: int = 1) -> npt.NDArray[np.float64]:
        return np.full(steps, TOY.fixed + TOY.per_token * load.tokens)

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return 0

    def wake_seconds(self, idle: float) -> float:
        return 0.0


def policies_of(kind: type[Policy]) -> list[str]:
    """The registered serving policies that are asked that question."""
    known = sorted(registry.family_policies("serving"))
    return [name for name in known if issubclass(registry.policy_class("serving", name), kind)]


def serve_paged(trace: RequestTrace, name: str, blocks: int = 10**4, **knobs: object) -> ServingPlan:
    """By a policy over KV blocks of 4 tokens unless told."""
    made = registry.create("serving", name, {"block_size": 4, **knobs})
    assert isinstance(made, PagedPolicy)
    return simulate_paged(trace, made.settle(ToyPrice(), trace.prompt.tolist()), blocks, ToyPrice())


def policy(name: str, **knobs: object) -> ServingPolicy:
    made = registry.create("serving", name, knobs)
    assert isinstance(made, ServingPolicy)
    return made


def engine(kv_slots: int = 10**6, max_output: int = 100, cost: LinearCost = TOY, stages: int = 1) -> Engine:
    return Engine(cost, kv_slots, max_output, stages)


def serve(trace: RequestTrace, name: str, on: Engine | None = None, **knobs: object) -> ServingPlan:
    return simulate(trace, on or engine(), policy(name, **knobs))


def answered(plan: ServingPlan) -> list[float]:
    """When each answer went out, in ms."""
    return [round(served.answered * 1e3, 6) for served in plan.served]
