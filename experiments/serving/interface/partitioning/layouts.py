"""Layouts of weights and of attention, and the elements that each chip sends for a layer (Pope et al., 3.2).

A volume is what one chip sends and receives in all-gathers and reduce-scatters of a layer, in elements: an
all-gather of V elements over n chips moves V (n - 1) / n, which is taken as V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.serving.interface.partitioning.site import DividedModel, Phase, Torus

#: How attention is divided: over heads, over the batch, over heads that all have their own keys and values.
HEADS, BATCH, MULTIHEAD = "heads", "batch", "multihead"
#: Weights stay, divided once or twice; or they are gathered over more and more chips.
LAYOUTS = ("1d", "2d", "gathered_x", "gathered_xy", "gathered_xyz")


@dataclass(frozen=True)
class Layout:
    """``name`` is one of ``LAYOUTS``; on ``torus``."""

    name: str
    torus: Torus

    @property
    def gathered(self) -> int:
        """Chips over which weights are gathered; 1 where they stay."""
        x, y = self.torus.x, self.torus.y
        return {"gathered_x": x, "gathered_xy": x * y, "gathered_xyz": self.torus.chips}.get(self.name, 1)


def activation_elements(layout: Layout, hidden: int, inner: int, tokens: int) -> float:
    """Return the activations that a chip moves for ``tokens`` of a pass (sections 3.2.1 to 3.2.3)."""
    torus, gathered = layout.torus, layout.gathered
    if gathered == torus.chips:
        return 0.0
    if layout.name == "1d":
        return 2.0 * tokens * hidden
    if layout.name == "2d":
        return 2.0 * tokens * (hidden / torus.x + inner / torus.yz)
    return 2.0 * tokens * hidden / gathered


def weight_elements(layout: Layout, layer_weights: float) -> float:
    """Return the weights that a chip gathers."""
    return layer_weights * layout.gathered / layout.torus.chips if layout.gathered > 1 else 0.0


def attention_elements(model: DividedModel, attention: str, phase: Phase, chips: int) -> float:
    """Return what two all-to-alls move where each chip keeps sequences: queries in, outputs back."""
    if attention != BATCH:
        return 0.0
    return 2.0 * phase.tokens_per_pass * model.heads * model.head_dim / chips


def kv_bytes_per_context_token(
    model: DividedModel, attention: str, batch: int, chips: int, element: int
) -> float:
    """Return the bytes of keys and values that a chip keeps for a token of context of every sequence.

    Divided over heads they are padded to one a chip: multiquery attention's only one lies on every chip.
    Divided over the batch a chip keeps whole sequences.
    """
    if attention == BATCH:
        sequences, heads = math.ceil(batch / chips), model.kv_heads
    else:
        sequences, heads = batch, math.ceil(model.kv_heads / chips)
    return 2.0 * heads * model.head_dim * element * model.layers * sequences
