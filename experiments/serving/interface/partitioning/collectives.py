"""What the collectives of a layer last on the links of a three-dimensional torus.

An axis has a third of a chip's links, and a collective over some axes has theirs alone. An all-gather or a
reduce-scatter over n chips moves (n - 1) / n of its volume, and goes around each ring in both directions:
half of the ring's length in hops. In an all-to-all each element goes a quarter of each ring on average. A hop
takes the link's latency, which nothing hides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.serving.interface.partitioning.layouts import (
    BATCH,
    Layout,
    attention_elements,
    weight_elements,
)
from experiments.serving.interface.partitioning.site import DividedModel, Phase

#: Axes of the torus; the peer link's bandwidth is that of all of them.
AXES = 3


@dataclass(frozen=True)
class Collective:
    """``size`` bytes that a chip gathers or sums up over the rings of lengths ``rings``."""

    size: float
    rings: tuple[int, ...]
    is_all_to_all: bool = False

    def transfer_time(self, bandwidth: float) -> float:
        """Return the seconds on the links of its rings; ``bandwidth`` is that of a chip's links together."""
        axes = [ring for ring in self.rings if ring > 1]
        if not axes:
            return 0.0
        chips = 1
        for ring in axes:
            chips *= ring
        moved = self.size * (chips - 1) / chips
        if self.is_all_to_all:
            moved = self.size * sum(axes) / 4
        return moved / (bandwidth * len(axes) / AXES)

    @property
    def hops(self) -> int:
        return sum(ring // 2 for ring in self.rings)


def layer_collectives(
    model: DividedModel, layout: Layout, attention: str, phase: Phase, activation: int, weight: int
) -> Iterator[Collective]:
    """Yield the collectives of a layer; ``activation`` and ``weight`` are the bytes of an element.

    Attention and the feed-forward layer are parallel, as PaLM's: they share their inputs and their sum.
    """
    torus, tokens = layout.torus, phase.tokens_per_pass
    x, yz, all_axes = (torus.x,), (torus.y, torus.z), (torus.x, torus.y, torus.z)
    hidden, widths = tokens * model.hidden * activation, tokens * model.widths * activation
    match layout.name:
        case "1d":
            yield from [Collective(hidden, all_axes)] * 2
        case "2d":
            yield from [Collective(hidden / torus.x, yz)] * 2
            yield from [Collective(widths / 2 / torus.yz, x)] * 2
        case gathered:
            taken = {"gathered_x": 1, "gathered_xy": 2, "gathered_xyz": 3}[gathered]
            yield from [Collective(hidden / layout.gathered, all_axes[taken:])] * 2
            yield Collective(weight * weight_elements(layout, model.layer_weights), all_axes[:taken])
    if attention == BATCH:
        size = activation * attention_elements(model, attention, phase, torus.chips) / 2
        yield from [Collective(size, all_axes, is_all_to_all=True)] * 2
