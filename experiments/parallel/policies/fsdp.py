"""FSDP2: weights, gradients and optimizer state divided among all devices, gathered block by block while
others compute.

Source: Zhao et al., "PyTorch FSDP", VLDB'23 (a unit's weights are gathered before its passes and dropped
behind them); torchtitan (Liang et al., 2024) for context parallelism combined with it and for selective
recomputation by operator, which keeps what attention and every second matrix product gave and computes the
rest of a block again. Its module is unsharded once for computing again and for the gradient, and divided over
the devices that share a sequence too. Hybrid sharding (section 3.2.2) divides inside groups of ``shard``
devices; the groups' gradients are summed part by part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from experiments.core.errors import BadInput
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    whole_share,
)
from experiments.parallel.interface.engines import ENGINES, PLAIN
from experiments.parallel.interface.open_counts import doubling
from experiments.parallel.planning.settings import grid
from experiments.parallel.planning.transformers.plan import Degrees, megatron_plan
from experiments.parallel.planning.transformers.shardings import BESIDE, EXCHANGES
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer_layers import OPERATORS

#: What selective recomputation keeps of a block: attention, and the first, third, fifth ... product.
SAVED = ("attention", "query", "qkv", "value", "expand", "contract")


@dataclass(frozen=True)
class Fsdp(LivePolicy, ParallelPolicy):
    """Fully sharded data parallelism of a transformer, block by block; context parallelism if asked for."""

    name: ClassVar[str] = "fsdp"
    mechanism: ClassVar[str] = "sharded states"
    layers: ClassVar[str] = OPERATORS

    context: int = knob(1, "devices that share a sequence", low=1, high=1024)
    micro_batches: int | None = open_knob("micro-batches accumulated before the update", low=1, high=65536)
    shard: int = knob(
        0, "devices that divide states, the groups copies (hybrid sharding); 0: all", low=0, high=65536
    )
    context_exchange: str = knob(
        BESIDE,
        "keys and values of devices that share a sequence come: while these compute; in a ring of kernels "
        "whose results are merged; before they compute",
        choices=EXCHANGES,
    )
    engine: str = knob(
        PLAIN,
        "who carries the plan out, and holds buffers of its own on top of states and activations",
        choices=ENGINES,
    )
    recompute: str | None = open_knob(
        "computed again: nothing; all but attention and every second product; whole blocks",
        choices=("none", "selective", "blocks"),
    )

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """All samples at once and nothing again; then every micro-batch and recomputation."""
        yield from grid(self, micro_batches=(1,), recompute=("none",))
        counts = doubling(batch * self.context // cluster.device_count)
        yield from grid(self, micro_batches=counts, recompute=("none", "selective", "blocks"))

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        if model.transformer is None:
            wanted = "a decoder-only transformer's configuration or sheet"
            raise BadInput("is not known by its sizes", model.name, wanted)
        replicas = whole_share(cluster.device_count, self.context, "devices", "knobs.context")
        parts = replicas * (self.micro_batches or 1)
        samples = whole_share(batch, parts, "samples", "knobs.micro_batches")
        again = "none" if self.recompute in (None, "none") else "blocks"
        layout = Degrees(
            context=self.context,
            context_exchange=self.context_exchange,
            micro_batch=samples,
            recompute=again,
            zero=3,
            shard=self.shard,
            engine=self.engine,
        )
        plan = megatron_plan(model, cluster, batch, layout)
        return replace(plan, saved=self._saved_layers(model))

    def _saved_layers(self, model: LayerGraph) -> tuple[int, ...]:
        if self.recompute != "selective":
            return ()
        return tuple(
            layer
            for layer, name in enumerate(model.layer)
            if name.startswith("blocks.") and name.rpartition(".")[2] in SAVED
        )
