"""Request traces written by hand, and the toy engine: 10 ms and 1 ms per token."""

from __future__ import annotations

import numpy as np

from experiments.core import registry
from experiments.serving.interface import Engine, LinearCost, ServingPlan, ServingPolicy
from experiments.serving.simulator import simulate
from experiments.workloads.requests import RequestTrace

TOY = LinearCost(fixed=0.010, per_token=0.001)


def requests(*rows: tuple[float, int, int]) -> RequestTrace:
    """Requests from ``(arrival in ms, prompt, output)`` rows in the order of arrival."""
    arrival, prompt, output = zip(*rows, strict=True)
    milliseconds = np.array(arrival, np.float64) / 1e3
    names = ("",) * len(rows)
    return RequestTrace("by hand", milliseconds, np.array(prompt), np.array(output), names)


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
