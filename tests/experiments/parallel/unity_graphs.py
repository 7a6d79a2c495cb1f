"""Small graphs of products and what stands in their place, for tests of Unity's substitutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.hardware import Hardware
from experiments.parallel.policies.unity.algebra import Alternatives, alternatives
from experiments.parallel.policies.unity.rewritten_times import RewrittenTimes
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged
from tests.experiments.parallel.builders import cluster, estimate

ROWS, WIDTH = 4, 4


def read(source: int, columns: int) -> Operand:
    return Operand(("batch", "in"), 4.0 * ROWS * columns, source)


def product(number: int, source: int, columns: int, *, inner: int = WIDTH, bias: bool = False) -> Operator:
    """Rows of ``source`` times a weight of its own."""
    weights = [Operand(("out", "in"), 4.0 * columns * inner, parameter=2 * number)]
    weights += [Operand(("out",), 4.0 * columns, parameter=2 * number + 1)] if bias else []
    return Operator(
        name=f"product{number}",
        kind="einsum",
        layer=number,
        sizes=(("batch", ROWS), ("out", columns), ("in", inner)),
        output=("batch", "out"),
        operands=(read(source, inner), *weights),
        output_bytes=4.0 * ROWS * columns,
        stash_bytes=4.0 * ROWS * columns,
        flops=2.0 * ROWS * columns * inner,
    )


def pointwise(number: int, sources: Sequence[int], columns: int, function: str) -> Operator:
    """A relu, a sum or an identity of tensors of one size."""
    operands = tuple(Operand(("batch", "out"), 4.0 * ROWS * columns, source) for source in sources)
    return Operator(
        name=f"{function}{number}",
        kind="elementwise",
        layer=number,
        sizes=(("batch", ROWS), ("out", columns)),
        output=("batch", "out"),
        operands=operands or (Operand(("batch",), 0.0),),
        output_bytes=4.0 * ROWS * columns,
        function=function,
    )


def network(*operators: Operator, seconds: float = 1.0) -> LayerGraph:
    """Each operator is a layer of its own; each takes as long."""
    column = np.full(len(operators), seconds / 2)
    weights = [float(sum(operand.bytes for operand in one.parameters)) for one in operators]
    sources = [sorted({o.source for o in one.operands if o.source >= 0}) for one in operators]
    return LayerGraph(
        name="network",
        layer=tuple(operator.name for operator in operators),
        kind=("operator",) * len(operators),
        forward_seconds=column,
        backward_seconds=column,
        forward_flops=np.array([operator.flops for operator in operators]),
        backward_flops=np.array([2 * operator.flops for operator in operators]),
        parameter_bytes=np.array(weights),
        output_bytes=np.array([operator.output_bytes for operator in operators]),
        stash_bytes=np.array([operator.stash_bytes for operator in operators]),
        predecessors=Ragged.of(sources),
        batch=ROWS,
        einsums=operators,
    )


def siblings_of_three(*, relu: bool = False, bias: bool = False, columns: int = WIDTH) -> LayerGraph:
    """Three products of one input, with a relu behind each or without, added up."""
    first = pointwise(0, [], WIDTH, "identity")
    products = [product(n, 0, columns, bias=bias) for n in (1, 2, 3)]
    relus = [pointwise(n + 3, [n], columns, "relu") for n in (1, 2, 3)] if relu else []
    last = 4 + len(relus)
    sources = [4, 5, 6] if relu else [1, 2, 3]
    return network(first, *products, *relus, pointwise(last, sources, columns, "sum"))


def found_in(model: LayerGraph, hardware: Hardware | None = None) -> Alternatives:
    how = estimate(model, hardware or cluster(1, 2), optimizer="sgd")
    return alternatives(model.einsums, RewrittenTimes(how), 4)


def graphs(found: Alternatives) -> list[frozenset[int]]:
    """Every graph that substitutions lead to, by its operators."""
    known = {frozenset(range(found.own))}
    waiting = list(known)
    while waiting:
        live = waiting.pop()
        for rewriting in found.rewritings:
            made = live - rewriting.took | {*rewriting.made}
            if rewriting.took <= live and made not in known:
                known.add(made)
                waiting.append(made)
    return sorted(known, key=sorted)
