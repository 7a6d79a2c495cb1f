"""Data parallelism: a replica on every device, gradients summed by all-reduce while backward still runs.

Buckets as in Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB'20,
section 3.2.2-3.2.3: gradients fill buckets in reverse layer order, each is reduced as soon as it is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ALGORITHMS,
    Estimate,
    LivePolicy,
    ParallelPlan,
    Synchronisation,
    data_parallel_plan,
)
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class DataParallel(LivePolicy):
    """The whole model on every device; gradients are all-reduced in buckets, overlapped with backward."""

    name: ClassVar[str] = "data_parallel"

    micro_batches: int = knob(
        1, "micro-batches accumulated on each device before the update", low=1, high=65536
    )
    bucket_bytes: float = knob(25 * 2**20, "gradient bucket", low=1, high=1e12, unit="bytes")
    algorithm: str = knob("ring", "all-reduce algorithm (simulated)", choices=ALGORITHMS)

    def sync(self) -> Synchronisation:
        return Synchronisation(bucket_bytes=self.bucket_bytes, algorithm=self.algorithm)

    def place(self, model: LayerGraph, cluster: Hardware, batch: int, estimate: Estimate) -> ParallelPlan:
        return data_parallel_plan(model, cluster, batch, self.micro_batches, self.sync())
