"""Mixtures of experts on devices: how each layer's experts are shared out, what travels, and how much of it
is hidden.

Source: Hwang et al., "Tutel: Adaptive Mixture-of-Experts at Scale", MLSys'23, sections 3.1 (adaptive
parallelism), 3.2 (adaptive pipelining) and 3.3 (two-level all-to-all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.parallel.interface import Collective
from experiments.parallel.planning.operators.operators import operators_of
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class MoeLayer:
    """A layer with ``experts`` experts.

    ``parameter_bytes`` of all of them, bytes ``dispatched`` for a sample, and the ``share`` of time.
    """

    layer: int
    experts: int
    parameter_bytes: float
    dispatched: float
    share: float


def moe_layers(model: LayerGraph) -> tuple[MoeLayer, ...]:
    """Return the layers whose products have weights for each expert; ``BadInput`` for none."""
    found = []
    operators = operators_of(model)
    for layer in sorted({operator.layer for operator in operators}):
        own = [o for o in operators if o.layer == layer and o.kind == "einsum" and "experts" in o.output]
        own = [o for o in own if any("experts" in p.dims for p in o.parameters) and "capacity" in o.output]
        if own:
            first = own[0]
            arriving = sum(o.bytes for o in first.operands if o.parameter < 0) / model.batch
            weights = sum(p.bytes for o in own for p in o.parameters)
            found.append(MoeLayer(layer, first.size["experts"], weights, arriving, sum(o.share for o in own)))
    counts = sorted({one.experts for one in found})
    if len(counts) != 1:
        what = f"has layers of {counts} experts" if counts else "has no layer of experts"
        raise BadInput(what, model.name, "layers of equally many experts")
    return tuple(found)


def sharing(experts: int, devices: int, where: str) -> int:
    """Return the devices that share an expert: 1 unless there are more devices than experts."""
    if experts % devices and devices % experts:
        raise BadInput(f"{experts} experts on {devices} devices", where, "one a multiple of the other")
    return max(1, devices // experts)


def valid_degrees(sharing: int) -> list[int]:
    """Return 0 for plain data parallelism, and the divisors of the devices that share an expert."""
    return [0, *(r for r in range(1, sharing + 1) if sharing % r == 0)]


def rule_of_thumb(dispatched: float, expert_parameters: float, sharing: int) -> int:
    """Return the degree that the open implementation's rule gives.

    Model parallelism inside an expert exactly where the tokens sent again are fewer than its parameters, both
    in values.
    """
    return sharing if 2 * dispatched * (sharing - 1) < expert_parameters else 1


@dataclass(frozen=True)
class ExpertChoice:
    """How tokens reach the devices that share an expert.

    ``degree`` r: each token goes to r of these devices (0: to none, weights come instead).

    Tokens travel in ``chunks`` so that those of one hide behind the experts at work on another; ``two_level``
    sends them inside the node first.
    """

    degree: int
    chunks: int
    two_level: bool


@dataclass(frozen=True)
class Exchanges:
    """Collectives of one MoE layer on ``devices`` devices, ``per_node`` in each node."""

    devices: int
    per_node: int

    def tokens(self, layer: MoeLayer, choice: ExpertChoice, capacity: float) -> tuple[Collective, ...]:
        """Return what each device sends one way, for a sample of the whole batch."""
        if choice.degree == 0 or self.devices == 1:
            return ()
        size = layer.dispatched * capacity * choice.degree / self.devices
        nodes = self.devices // self.per_node
        if choice.two_level and nodes > 1 and self.per_node > 1:
            inside = Collective("all_to_all", size, self.per_node)
            return inside, Collective("all_to_all", size, nodes, self.per_node)
        return (Collective("all_to_all", size),)

    def weights(self, layer: MoeLayer, choice: ExpertChoice) -> tuple[Collective, ...]:
        """Return the gather of a pass.

        The whole of all experts, or a ``degree``-th of the own one from those that share it.
        """
        if choice.degree == 0:
            whole = Collective("all_gather", layer.parameter_bytes, per="pass")
            return (whole,) if self.devices > 1 else ()
        shared = max(1, self.devices // layer.experts)
        ranks = shared // choice.degree
        part = layer.parameter_bytes / layer.experts / choice.degree
        return (Collective("all_gather", part, ranks, choice.degree, "pass"),) if ranks > 1 else ()


def hidden_share(exchange: float, compute: float, chunks: int) -> float:
    """Return the part of ``exchange`` seconds that ``compute`` seconds of experts hide.

    ``exchange`` is both ways; both come in ``chunks``.

    The layer then takes (exchange + compute) / d + (d - 1) / d max(exchange, compute): what is not hidden is
    the rest.
    """
    if exchange == 0:
        return 0.0
    return (chunks - 1) / chunks * min(1.0, compute / exchange)


def split(collectives: Sequence[Collective], hidden: float) -> tuple[Collective, ...]:
    """Return each collective as two: the ``hidden`` part overlapped with computation, and the rest.

    The rest comes after it.
    """
    found = []
    for one in collectives:
        for part, overlap in ((hidden, True), (1 - hidden, False)):
            if part > 0:
                found.append(Collective(one.kind, one.bytes * part, one.ranks, one.stride, one.per, overlap))
    return tuple(found)
