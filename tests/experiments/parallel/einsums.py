"""Operators a reader can count: matrix products and what follows them, all values of one byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain

SIZES = {"b": 8, "d": 16, "f": 32}


def product(
    data: str, weight: str, output: str, *, source: int = -1, parameter: int = 0, layer: int = 0, **sizes: int
) -> Operator:
    """``product("bd", "df", "bf")`` is X[b, d] W[d, f] -> Y[b, f]; each letter is a loop."""
    size = {**SIZES, **sizes}
    names = dict.fromkeys(output + data + weight)

    def count(dims: str) -> float:
        return float(math.prod(size[name] for name in dims))

    return Operator(
        name=f"{data},{weight}->{output}",
        kind="einsum",
        layer=layer,
        sizes=tuple((name, size[name]) for name in names),
        output=tuple(output),
        operands=(
            Operand(tuple(data), count(data), source),
            Operand(tuple(weight), count(weight), parameter=parameter),
        ),
        output_bytes=count(output),
        stash_bytes=count(output),
        flops=2.0 * math.prod(size[name] for name in names),
    )


def light(dims: str, source: int, layer: int = 0, *others: int) -> Operator:
    """An element-wise operator on the results of ``source`` and ``others``."""
    size = float(math.prod(SIZES[name] for name in dims))
    read = tuple(Operand(tuple(dims), size, number) for number in (source, *others))
    loops = tuple((name, SIZES[name]) for name in dims)
    return Operator("light", "elementwise", layer, loops, tuple(dims), read, size, share=0.0)


def model_of(operators: Sequence[Operator], seconds: float = 1.0, batch: int = 8) -> LayerGraph:
    """A chain with a layer for each number that the operators name; ``seconds`` forward, twice as much
    backward.
    """
    layers = max(operator.layer for operator in operators) + 1
    graph = chain(layers, seconds / batch, 2 * seconds / batch, batch=batch)
    sizes = [
        sum(o.bytes for operator in operators if operator.layer == layer for o in operator.parameters)
        for layer in range(layers)
    ]
    return replace(graph, einsums=tuple(operators), parameter_bytes=graph.parameter_bytes + sizes)
