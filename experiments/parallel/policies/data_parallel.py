"""Data parallelism: a replica on every device, gradients summed by all-reduce while backward still runs.

Buckets as in Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB'20,
section 3.2.2-3.2.3: gradients fill buckets in reverse layer order, each is reduced as soon as it is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.parallel.interface import LivePolicy
from experiments.parallel.planning.gradient_exchange import GradientExchange


@dataclass(frozen=True)
class DataParallel(LivePolicy, GradientExchange):
    """The whole model on every device; gradients are all-reduced in buckets, overlapped with backward."""

    name: ClassVar[str] = "data_parallel"
    mechanism: ClassVar[str] = "data parallel"
