"""ZeRO (Rajbhandari et al., SC'20): data parallelism without the redundancy of replicated model states.

"P_os", "P_os+g" and "P_os+g+p" of the paper are stages 1, 2 and 3. Gradients are reduced and parameters
gathered in buckets; stage 3 gathers one bucket before the compute needs it (the paper says pipelined, not how
far). From stage 2 on each micro-batch reduces, since no device keeps whole gradients; at most two buckets of
them exist at once (left open by the paper; without a limit a slow network would bring all of them back). With
``recompute`` each layer is computed again from its input; DeepSpeed then gathers its weights again for the
backward pass where a layer has more parameters than it keeps for reuse (1e9 by default), which ``regather``
says. Not reproduced: ZeRO-R (activation partitioning, constant buffers, defragmentation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Synchronization,
    data_parallel_plan,
)
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer_layers import BLOCKS


@dataclass(frozen=True)
class Zero(LivePolicy, ParallelPolicy):
    """Data parallelism with optimizer state (1), gradients (2) and parameters (3) sharded."""

    name: ClassVar[str] = "zero"
    layers: ClassVar[str] = BLOCKS

    stage: int = knob(1, "ZeRO stage; 0 is plain data parallelism", choices=(0, 1, 2, 3))
    micro_batches: int = knob(
        1, "micro-batches accumulated on each device before the update", low=1, high=65536
    )
    bucket_bytes: float = knob(25 * 2**20, "reduce and gather bucket", low=1, high=1e12, unit="bytes")
    recompute: bool = knob(
        False, "keep each layer's input only and compute it again before its backward pass"
    )
    regather: bool = knob(
        True, "stage 3 gathers what is computed again twice: to compute it, and for its gradient"
    )

    def sync(self) -> Synchronization:
        twice = self.regather and self.recompute and self.stage == 3
        return Synchronization(bucket_bytes=self.bucket_bytes, regather=twice)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        plan = data_parallel_plan(model, cluster, batch, self.micro_batches, self.sync(), zero=self.stage)
        again = tuple(range(len(model))) if self.recompute else ()
        return replace(plan, recompute=again, checkpoints=again)
