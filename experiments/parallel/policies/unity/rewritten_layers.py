"""What a graph that algebraic substitutions made means for the layers of its model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.parallel.interface import RewrittenLayer
from experiments.parallel.policies.unity.algebra import Alternatives
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats


def rewritten_layers(
    model: LayerGraph, found: Alternatives, live: Sequence[int]
) -> tuple[tuple[RewrittenLayer, ...], tuple[Operator, ...]]:
    """Return the layers that the graph ``live`` computes otherwise, and its operators with their shares.

    A layer takes, keeps and holds what it did, less what was taken out of it, and what was put in. Nothing
    where the graph is the model's own.
    """
    before = found.operators[: found.own]
    graph, numbers = found.graph(live)
    gone = [before[number] for number in range(found.own) if number not in set(numbers)]
    new = [operator for operator, number in zip(graph, numbers, strict=True) if number >= found.own]
    changed = sorted({operator.layer for operator in (*gone, *new)})
    own, _ = found.graph(range(found.own))
    read = _layers_read(own), _layers_read(graph)
    lists = model.predecessors.lists()
    rows, scale = [], np.ones(len(model))
    for layer in changed:
        out = [operator for operator in gone if operator.layer == layer]
        put = [operator for operator in new if operator.layer == layer]
        scale[layer] += sum(one.share for one in put) - sum(one.share for one in out)
        lost, gained = read[0][layer] - read[1][layer], read[1][layer] - read[0][layer]
        sources = tuple(sorted(set(lists[layer]) - lost | gained)) or tuple(lists[layer])
        rows.append(_row(model, layer, out, put, float(max(0.0, scale[layer])), sources))
    return tuple(rows), tuple(_scale_share(operator, scale) for operator in graph)


def _row(
    model: LayerGraph,
    layer: int,
    out: Sequence[Operator],
    put: Sequence[Operator],
    scale: float,
    sources: tuple[int, ...],
) -> RewrittenLayer:
    def difference(values: Any) -> float:
        return float(sum(map(values, put)) - sum(map(values, out)))

    def whole(column: Floats, more: float) -> float:
        return max(0.0, float(column[layer]) + more)

    flops = difference(lambda operator: operator.flops)
    ratio = _ratio(float(model.backward_flops[layer]), float(model.forward_flops[layer]))
    return RewrittenLayer(
        layer=layer,
        operators=tuple(operator.name for operator in put),
        forward_seconds=float(model.forward_seconds[layer]) * scale,
        backward_seconds=float(model.backward_seconds[layer]) * scale,
        forward_flops=whole(model.forward_flops, flops),
        backward_flops=whole(model.backward_flops, flops * ratio),
        parameter_bytes=whole(model.parameter_bytes, difference(_parameter_bytes)),
        output_bytes=float(model.output_bytes[layer]),
        stash_bytes=whole(model.stash_bytes, difference(lambda operator: operator.stash_bytes)),
        predecessors=sources,
    )


def _ratio(one: float, other: float) -> float:
    return one / other if other else 2.0


def _parameter_bytes(operator: Operator) -> float:
    return sum(operand.bytes for operand in operator.parameters)


def _layers_read(operators: Sequence[Operator]) -> dict[int, set[int]]:
    """The other layers that the operators of each layer read."""
    found: dict[int, set[int]] = defaultdict(set)
    for operator in operators:
        layers = {operators[o.source].layer for o in operator.operands if o.source >= 0}
        found[operator.layer] |= layers - {operator.layer}
    return found


def _scale_share(operator: Operator, scale: Floats) -> Operator:
    """The operator with its share of what its layer takes now."""
    whole = float(scale[operator.layer])
    return (
        operator if whole == 1 else replace(operator, share=operator.share / whole if whole > 1e-12 else 0.0)
    )
