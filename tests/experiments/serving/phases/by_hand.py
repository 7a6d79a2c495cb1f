"""Instances whose passes cost what a test says, and links as fast as it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.core import registry
from experiments.hardware.parts import Link
from experiments.serving.interface.blocks import BlockPool
from experiments.serving.interface.phases import (
    DECODE,
    PREFILL,
    Instance,
    InstanceShape,
    InstanceView,
    PhasePlan,
    PhasePolicy,
    phase_violations,
    place_instances,
)
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.simulator.phases import Fabric, InstanceEngine, simulate_phases
from experiments.workloads.requests import RequestTrace

Seconds = Callable[[StepLoad], float]


@dataclass(frozen=True)
class Price:
    """``stage`` s of a pass through one stage, up to ``woken`` s more after a pause ten times as long.

    More than ``measured`` tokens were not measured.
    """

    stage: Seconds
    woken: float = 0.0
    measured: float = math.inf

    def seconds(self, load: StepLoad, steps: int = 1) -> npt.NDArray[np.float64]:
        return np.full(steps, self.stage(load))

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return steps if load.tokens > self.measured else 0

    def wake_seconds(self, idle: float) -> float:
        return min(0.1 * idle, self.woken)


def toy(load: StepLoad) -> float:
    """10 ms and 1 ms per token."""
    return 0.010 + 0.001 * load.tokens


def fabric(seconds: float = 0.0, per_node: int = 8) -> Fabric:
    """Every copy takes so long, of a model of four layers."""
    link = Link("by hand", 1e30, seconds, True, "by hand")
    return Fabric(link, link, per_node, 1.0, 4)


def policy(name: str, **knobs: object) -> PhasePolicy:
    made = registry.create("serving", name, {"block_size": 4, **knobs})
    assert isinstance(made, PhasePolicy)
    return made


def pairs(prompts: int, answers: int, pipeline: int = 1) -> tuple[Instance, ...]:
    """Instances of one device to a stage."""
    shape = InstanceShape(pipeline, 1)
    wanted = [(PREFILL, shape)] * prompts + [(DECODE, shape)] * answers
    placed = place_instances(wanted, 1, pipeline * (prompts + answers))
    assert placed is not None
    return placed


def instance_view(role: str, blocks: int) -> InstanceView:
    """An empty instance with so many blocks of four tokens."""
    pool, shape = BlockPool(blocks, 4), InstanceShape(1, 1)
    return InstanceView(0.0, [], [], [], pool, [], False, instance=Instance(role, shape, (0,)), place=0)


def serve(
    trace: RequestTrace,
    name: str,
    instances: Sequence[Instance],
    *,
    stage: Seconds = toy,
    blocks: int = 10**4,
    joined: Fabric | None = None,
    answers_only: bool = False,
    woken: float = 0.0,
    measured: float = math.inf,
    **knobs: object,
) -> PhasePlan:
    """By a policy whose plan the checker finds nothing about."""
    made = policy(name, **knobs)
    plan = simulate_phases(
        trace,
        instances,
        made.begin(instances),
        [InstanceEngine(Price(stage, woken, measured), blocks)] * len(instances),
        joined or fabric(),
        block_size=made.block_size,
        max_batch=made.max_batch,
        answers_only=answers_only,
    )
    assert phase_violations(plan, trace) == []
    return plan
