"""Efficiently scaling transformer inference, MLSys'23 (Pope et al.): a layout for each phase (section 3).

Weights stay, divided once (``1d``) or over both of their axes (``2d``), or are gathered over x, xy or all
chips; attention is divided over heads or over the batch (section 3.3: keys and values of multiquery attention
then lie once on the torus). ``auto`` takes what costs least; the layouts with two axes serve one another's
weights without moving them, so that the phases may differ. ``multihead`` is the paper's comparison: heads of
half the size, each with keys and values of its own.

Chosen by the paper's volumes, over all links of a chip; priced by the links of the axes that a collective
uses, its hops, and what kernels reach (``interface.partitioning``).

Assumed: half of what is sent is hidden behind products (looped collectives, section 3.5; ``overlap``), layers
have no overhead. The paper's own times are longer where few tokens are at work (decision 0187).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.core.units import DTYPE_BYTES
from experiments.serving.interface.partitioning import (
    BATCH,
    HEADS,
    LAYOUTS,
    MULTIHEAD,
    DividedModel,
    Layout,
    Partition,
    PartitioningPolicy,
    Phase,
    PhaseCost,
    Torus,
    kv_bytes_per_context_token,
    phase_cost,
)

KV_TYPE = "bfloat16"
#: Heads of the comparison are so many times smaller.
SMALLER = 2


@dataclass(frozen=True)
class PalmPartitioning(PartitioningPolicy):
    """Weights stay or are gathered, attention is divided over heads or batch: what is fastest for a phase."""

    name: ClassVar[str] = "palm_partitioning"

    phase: str = knob("decode", "what is carried out", choices=("prefill", "decode"))
    tokens: int = knob(64, "tokens of each answer (decode)", low=1, high=10**6, unit="tokens")
    context: int = knob(1920, "tokens of each sequence before them", low=0, high=10**7, unit="tokens")
    weights: str = knob("bfloat16", "type of the weights", choices=("bfloat16", "int8"))
    layout: str = knob("auto", "where weights are", choices=("auto", *LAYOUTS))
    attention: str = knob("auto", "how attention is divided", choices=("auto", HEADS, BATCH, MULTIHEAD))
    kv_share: float = knob(0.3, "share of memory for keys and values (max_context)", low=0.0, high=1.0)
    overlap: float = knob(0.5, "share of what is sent that is hidden", low=0.0, high=1.0)
    overhead: float = knob(0.0, "of each layer, beyond its operators", low=0.0, high=1.0, unit="s")

    def carried_out(self, batch: int, sequence: int) -> Phase:
        if self.phase == "prefill":
            return Phase(True, batch, sequence, 0)
        return Phase(False, batch, self.tokens, self.context)

    def options(self) -> Sequence[tuple[str, str]]:
        layouts = LAYOUTS if self.layout == "auto" else (self.layout,)
        ways = (HEADS, BATCH) if self.attention == "auto" else (self.attention,)
        return [(name, way) for name in layouts for way in ways]

    def partition(self, model: DividedModel, torus: Torus, phase: Phase) -> Partition:
        options = [Partition(Layout(name, torus), way) for name, way in self.options()]

        def rank(one: Partition) -> tuple[float, float, float]:
            """What fits before what does not, then the fastest by volume, then the least memory."""
            cost = self.cost(model, one, phase)
            missing = max(0.0, cost.weights + cost.kv - torus.device.memory_bytes)
            return missing, cost.by_volume, cost.kv

        return min(options, key=rank)

    def cost(self, model: DividedModel, partition: Partition, phase: Phase) -> PhaseCost:
        return phase_cost(
            self._model_with_attention(model),
            partition.layout,
            partition.attention,
            phase,
            weight_type=self.weights,
            overlap=self.overlap,
            overhead=self.overhead,
        )

    def max_context(self, model: DividedModel, partition: Partition, batch: int) -> float:
        torus, element = partition.layout.torus, DTYPE_BYTES[KV_TYPE]
        of_a_token = kv_bytes_per_context_token(
            self._model_with_attention(model), partition.attention, batch, torus.chips, element
        )
        return self.kv_share * torus.device.memory_bytes / of_a_token

    def _model_with_attention(self, model: DividedModel) -> DividedModel:
        if self.attention != MULTIHEAD:
            return model
        return dataclasses.replace(model, head_dim=model.head_dim // SMALLER, kv_heads=model.heads)
