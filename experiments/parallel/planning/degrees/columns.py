"""Megatron plans as numpy columns of degrees and choices, with an entry for each plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.parallel.interface.engines import ENGINES
from experiments.parallel.planning.transformers.plan import RECOMPUTATION, Degrees
from experiments.parallel.planning.transformers.shardings import EXCHANGES
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Columns:
    """Plans as columns of degrees and choices.

    Every column has shape (plans,); ``recompute`` are places in ``RECOMPUTATION``, ``context_exchange`` in
    ``EXCHANGES``, ``engine`` in ``ENGINES``.
    """

    tensor: Ints
    pipeline: Ints
    replicas: Ints
    interleaved: Ints
    micro_batch: Ints
    context: Ints
    recompute: Ints
    zero: Ints
    sequence: Ints
    overlap: Ints
    overlap_products: Ints
    overlap_gradients: Ints
    shard: Ints
    context_exchange: Ints
    context_balanced: Ints
    overlap_messages: Ints
    embedding_blocks: Ints
    head_blocks: Ints
    first_extra: Ints
    expert: Ints
    skew: Floats
    node: Ints
    engine: Ints
    keep_gathered: Ints
    capacity: Floats
    host: Ints

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def joined(self) -> Ints:
        """Replicas of a worker, which share experts."""
        found: Ints = self.expert // np.gcd(self.expert, self.tensor * self.context)
        return found

    @property
    def holders(self) -> Ints:
        """Devices that hold the same weights: replicas, and the parts of a sequence."""
        return self.replicas * self.context * self.joined

    @property
    def expert_holders(self) -> Ints:
        """Devices that hold the same experts."""
        return self.holders * self.tensor // self.expert

    @property
    def sharers(self) -> Ints:
        """Of the holders those that ZeRO divides states among."""
        return self._sharing(self.holders)

    @property
    def expert_sharers(self) -> Ints:
        return self._sharing(self.expert_holders)

    def _sharing(self, holders: Ints) -> Ints:
        found: Ints = np.where(self.shard > 0, np.minimum(self.shard, holders), holders)
        return found

    def layout(self, index: int) -> Degrees:
        return Degrees(
            tensor=int(self.tensor[index]),
            pipeline=int(self.pipeline[index]),
            interleaved=int(self.interleaved[index]),
            micro_batch=int(self.micro_batch[index]),
            context=int(self.context[index]),
            sequence=bool(self.sequence[index]),
            recompute=RECOMPUTATION[int(self.recompute[index])],
            zero=int(self.zero[index]),
            overlap=bool(self.overlap[index]),
            overlap_products=bool(self.overlap_products[index]),
            overlap_gradients=bool(self.overlap_gradients[index]),
            shard=int(self.shard[index]),
            context_exchange=EXCHANGES[int(self.context_exchange[index])],
            context_balanced=bool(self.context_balanced[index]),
            overlap_messages=bool(self.overlap_messages[index]),
            embedding_blocks=int(self.embedding_blocks[index]),
            head_blocks=int(self.head_blocks[index]),
            first_extra=int(self.first_extra[index]),
            expert=int(self.expert[index]),
            skew=float(self.skew[index]),
            node=int(self.node[index]),
            engine=ENGINES[int(self.engine[index])],
            keep_gathered=bool(self.keep_gathered[index]),
            capacity=float(self.capacity[index]),
            host_optimizer=bool(self.host[index]),
        )

    @classmethod
    def of(cls, layouts: Sequence[Degrees], devices: int) -> Columns:
        return cls(*map(np.array, zip(*(_row(layout, devices) for layout in layouts), strict=True)))


def _row(layout: Degrees, devices: int) -> tuple[int | float, ...]:
    return (
        layout.tensor,
        layout.pipeline,
        layout.replicas(devices),
        layout.interleaved,
        layout.micro_batch,
        layout.context,
        RECOMPUTATION.index(layout.recompute),
        layout.zero,
        int(layout.sequence),
        int(layout.overlap),
        int(layout.overlap_products),
        int(layout.overlap_gradients),
        layout.shard,
        EXCHANGES.index(layout.context_exchange),
        int(layout.context_balanced),
        int(layout.overlap_messages),
        layout.embedding_blocks,
        layout.head_blocks,
        layout.first_extra,
        layout.expert,
        layout.skew,
        layout.node,
        ENGINES.index(layout.engine),
        int(layout.keep_gathered),
        layout.capacity,
        int(layout.host_optimizer),
    )
