"""Data parallelism as one class: a replica on every device, and a preset that says how their gradients are
summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ALGORITHMS,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Synchronization,
    data_parallel_plan,
)
from experiments.parallel.planning.settings import accumulations
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class GradientExchange(ParallelPolicy):
    """The whole model on every device; gradients are summed in buckets, overlapped with the backward pass.

    A preset sets knobs, leaves others open, and may say more in its plan than the exchange itself.
    """

    keeps_whole: ClassVar[str] = "every device has all model states"

    micro_batches: int | None = open_knob(
        "micro-batches accumulated on each device before the update", low=1, high=65536
    )
    bucket_bytes: float = knob(25 * 2**20, "gradient bucket", low=1, high=1e12, unit="bytes")
    algorithm: str = knob("ring", "all-reduce algorithm (simulated)", choices=ALGORITHMS)

    def sync(self) -> Synchronization:
        return Synchronization(bucket_bytes=self.bucket_bytes, algorithm=self.algorithm)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few micro-batches as fit."""
        return accumulations(self, batch // cluster.device_count)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        plan = data_parallel_plan(model, cluster, batch, self.micro_batches or 1, self.sync())
        return self.complete(plan, cluster, estimate)

    def complete(self, plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate) -> ParallelPlan:
        """The plan with what the preset decides beyond ``sync``: buckets, training, notes."""
        return plan
