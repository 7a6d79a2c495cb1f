"""ZeRO (Rajbhandari et al., SC'20): data parallelism without the redundancy of replicated model states.

"P_os", "P_os+g" and "P_os+g+p" of the paper are stages 1, 2 and 3. Gradients are reduced and parameters
gathered in buckets; stage 3 gathers one bucket before the compute needs it (the paper says pipelined, not how
far). From stage 2 on each micro-batch reduces, since no device keeps whole gradients; at most two buckets of
them exist at once (left open by the paper; without a limit a slow network would bring all of them back). With
``recompute`` each layer, or each block of a transformer in closed form, is computed again from its input;
DeepSpeed then gathers its weights again for the backward pass where a layer has more parameters than it keeps
for reuse (1e9 by default), which ``regather`` says. ``gather`` "tensors" is how DeepSpeed did it until the
summer of 2021 (0.3.15, runtime/zero/stage3.py): every weight by itself when its module begins. Its prefetch
never began, because the trace that it follows is one module off (mended in DeepSpeed's pull request 1170),
and for the same reason weights that are computed again are always gathered twice. With ``host_optimizer`` the
host has the optimizer's state and updates the weights (ZeRO-Offload, ATC'21). Not reproduced: ZeRO-R
(activation partitioning, constant buffers, defragmentation); measured runs leave out the host's optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Synchronization,
    data_parallel_plan,
)
from experiments.parallel.interface.engines import ENGINES, PLAIN
from experiments.parallel.interface.open_counts import doubling
from experiments.parallel.planning.settings import grid
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer_layers import BLOCK, BLOCKS

#: How weights come together under stage 3.
BUCKETS, TENSORS = "buckets", "tensors"


@dataclass(frozen=True)
class Zero(LivePolicy, ParallelPolicy):
    """Data parallelism with optimizer state (1), gradients (2) and parameters (3) sharded."""

    name: ClassVar[str] = "zero"
    mechanism: ClassVar[str] = "sharded states"
    layers: ClassVar[str] = BLOCKS

    stage: int | None = open_knob("ZeRO stage; 0 is plain data parallelism", choices=(0, 1, 2, 3))
    micro_batches: int | None = open_knob(
        "micro-batches accumulated on each device before the update", low=1, high=65536
    )
    bucket_bytes: float = knob(25 * 2**20, "reduce and gather bucket", low=1, high=1e12, unit="bytes")
    recompute: bool | None = open_knob(
        "keep each layer's input only and compute it again before its backward pass"
    )
    regather: bool = knob(
        True, "stage 3 gathers what is computed again twice: to compute it, and for its gradient"
    )
    gather: str = knob(
        BUCKETS,
        "stage 3 gathers and reduces in buckets, the next while one computes; or tensor by tensor, as "
        "DeepSpeed did until the summer of 2021",
        choices=(BUCKETS, TENSORS),
    )

    engine: str = knob(
        PLAIN,
        "who carries the plan out, and holds buffers of its own on top of states and activations",
        choices=ENGINES,
    )
    host_optimizer: bool = knob(False, "the host has the optimizer's state and updates the weights")

    def sync(self) -> Synchronization:
        twice = self.regather and self.recompute is True and self.stage == 3
        alone = self.gather == TENSORS and self.stage == 3
        return Synchronization(bucket_bytes=self.bucket_bytes, regather=twice, tensor_by_tensor=alone)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """Stage 1 on all samples at once; then every stage, micro-batch and recomputation."""
        yield from grid(self, stage=(1,), micro_batches=(1,), recompute=(False,))
        counts = doubling(batch // cluster.device_count)
        yield from grid(self, stage=(1, 2, 3), micro_batches=counts, recompute=(False, True))

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        stage = 1 if self.stage is None else self.stage
        plan = data_parallel_plan(model, cluster, batch, self.micro_batches or 1, self.sync(), zero=stage)
        again = recomputed_layers(model) if self.recompute else ()
        return replace(
            plan,
            recompute=again,
            checkpoints=again,
            engine=self.engine,
            host_optimizer=self.host_optimizer,
        )


def recomputed_layers(model: LayerGraph) -> tuple[int, ...]:
    """Return the blocks of a transformer in closed form, else every layer."""
    blocks = tuple(layer for layer, kind in enumerate(model.kind) if kind == BLOCK)
    return blocks or tuple(range(len(model)))
