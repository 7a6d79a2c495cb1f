"""TASO's hard-coded rewrites (SOSP'19, released code): those that its generator cannot express.

conv + batch norm in evaluation mode; two convolutions of one input with different kernels (the smaller is
padded with zeros, "enlarge", and both become one); a grouped convolution with half the groups, and zeros in
its filters. TASO also fuses conv + relu; ATen has no such op for floats, so there is nothing to rewrite to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from experiments.compilation.interface import Ref, Symbol
from experiments.compilation.planning.substitutions.graphs import OUTSIDE, GraphView
from experiments.compilation.planning.substitutions.space import Rewrite
from experiments.compilation.planning.substitutions.terms import (
    ATEN,
    BROADCAST,
    CHANNELS,
    RESULT,
    Opaque,
    Term,
    TermCall,
    Terms,
)

BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
NO_FUSED_OP = {"conv+relu": "ATen has no convolution with a relu inside for floats"}


def aten(terms: Terms, target: str, *arguments: object, **keywords: object) -> int:
    """Return an ATen op on terms: integers wrapped in ``Ref`` are terms' numbers."""
    inputs: list[int] = []

    def place(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(place(entry) for entry in value)
        if not isinstance(value, Ref):
            return value
        inputs.append(int(value.node))
        return Ref(str(len(inputs) - 1))

    placed = tuple(place(value) for value in arguments)
    call = TermCall(target, placed, tuple(sorted(keywords.items())))
    return terms.make(ATEN, Opaque(call), inputs)


def term(number: int) -> Ref:
    return Ref(str(number))


def conv_batch_norm(terms: Terms, graph: GraphView) -> Iterator[Rewrite]:
    """Yield rewrites that fold a batch normalization into the convolution before it.

    ``W' = W s``, ``b' = (b - mean) s + beta``, ``s = gamma / sqrt(var + eps)``, in float64, rounded once.
    """
    for number in graph.order:
        norm = terms[number]
        if norm.kind != ATEN or norm.data.call.target != BATCH_NORM:
            continue
        found = _convolution_before(terms, graph, norm)
        results = graph.readers[number]
        if found is None or any(r == OUTSIDE or terms[r].data != 0 for r in results):
            continue
        product, bias = found
        new = _fold_norm(terms, norm, terms[product], bias)
        took = (product, number) if bias is None else (product, terms[norm.inputs[0]].number, number)
        yield Rewrite("conv+bn", took, {results[0]: new})


def _convolution_before(terms: Terms, graph: GraphView, norm: Term) -> tuple[int, int | None] | None:
    """Return the convolution that only the norm reads, and the bias between them."""
    before = norm.inputs[0]
    if len(graph.readers[before]) > 1 or not all(terms[n].free for n in norm.inputs[1:]):
        return None
    product, bias = before, None
    if terms[before].kind == "ew_add":
        pairs = (terms[before].inputs, terms[before].inputs[::-1])
        for left, right in pairs:
            if terms[left].kind == "conv2d" and _is_bias(terms, right):
                product, bias = left, terms.bias(right)
    if terms[product].kind != "conv2d" or not terms[terms[product].inputs[1]].free:
        return None
    # A product inside the bias's node is read by that node alone.
    return (product, bias) if len(graph.readers[product]) == 1 else None


def _is_bias(terms: Terms, number: int) -> bool:
    return terms[number].free and terms[number].kind == BROADCAST and terms[number].data[0] == CHANNELS


def _fold_norm(terms: Terms, norm: Term, convolution: Term, bias: int | None) -> int:
    dtype = terms.type(convolution.inputs[1]).dtype
    x, weight = convolution.inputs
    places = norm.data.call.arguments

    def argument(place: int) -> int | None:
        value = places[place]
        return norm.inputs[int(value.node)] if isinstance(value, Ref) else None

    def copy(number: int, kind: str) -> int:
        return aten(terms, "aten._to_copy.default", term(number), dtype=Symbol("dtype", kind))

    gamma, beta, mean, variance = (argument(place) for place in range(1, 5))
    assert mean is not None and variance is not None
    wide = copy(variance, "float64")
    scale = aten(terms, "aten.rsqrt.default", term(aten(terms, "aten.add.Scalar", term(wide), places[6])))
    if gamma is not None:
        scale = terms.make("ew_mul", None, (scale, copy(gamma, "float64")))
    shift = aten(terms, "aten.neg.default", term(copy(mean, "float64")))
    if bias is not None:
        shift = terms.make("ew_add", None, (shift, copy(bias, "float64")))
    shift = terms.make("ew_mul", None, (shift, scale))
    if beta is not None:
        shift = terms.make("ew_add", None, (shift, copy(beta, "float64")))
    by_filter = aten(terms, "aten.view.default", term(scale), (terms.shape(scale)[0], 1, 1, 1))
    scaled = aten(terms, "aten.mul.Tensor", term(copy(weight, "float64")), term(by_filter))
    new = terms.make("conv2d", convolution.data, (x, copy(scaled, dtype)))
    return terms.make("ew_add", None, (new, terms.broadcast(copy(shift, dtype), CHANNELS, terms.shape(new))))


def enlarge_merge(terms: Terms, graph: GraphView) -> Iterator[Rewrite]:
    """Two convolutions of one input with odd kernels at stride 1 and the same size become one and a split."""
    for first, second in _siblings(terms, graph):
        kernels = [terms.shape(terms[n].inputs[1])[2:] for n in (first, second)]
        largest = (max(k[0] for k in kernels), max(k[1] for k in kernels))
        if kernels[0] == kernels[1] or largest not in kernels:
            continue
        filters = [_enlarge(terms, terms[n].inputs[1], largest) for n in (first, second)]
        roots, biases = _with_biases(terms, graph, (first, second))
        padding = (largest[0] // 2, largest[1] // 2)
        data = ((1, 1), padding, (1, 1), 1)
        joined = terms.make("conv2d", data, (terms[first].inputs[0], terms.make("concat", -4, filters)))
        if biases is not None:
            vector = terms.make("concat", -1, biases)
            joined = terms.make(
                "ew_add", None, (joined, terms.broadcast(vector, CHANNELS, terms.shape(joined)))
            )
        sizes = tuple(terms.shape(n)[1] for n in (first, second))
        parts = terms.make("split", (-3, sizes), (joined,))
        replaced = {root: terms.make(RESULT, i, (parts,)) for i, root in enumerate(roots)}
        yield Rewrite("enlarge-merge", tuple(dict.fromkeys((first, second, *roots))), replaced)


def _siblings(terms: Terms, graph: GraphView) -> Iterator[tuple[int, int]]:
    for source in graph.readers:
        own = [n for n in graph.readers[source] if n != OUTSIDE and _is_plain(terms, n)]
        same = [n for n in own if graph.representative(terms[n].inputs[0]) == source]
        yield from itertools.permutations(same, 2)  # what reads both in either order may want them so


def _is_plain(terms: Terms, number: int) -> bool:
    """One group, stride 1, odd kernel, padded to the same size, constant filters."""
    here = terms[number]
    if here.kind != "conv2d" or not terms[here.inputs[1]].free:
        return False
    stride, padding, dilation, groups = here.data
    kernel = terms.shape(here.inputs[1])[2:]
    same = all(size == 2 * around + 1 for size, around in zip(kernel, padding, strict=True))
    return bool(same and (stride, dilation, groups) == ((1, 1), (1, 1), 1))


def _enlarge(terms: Terms, weight: int, kernel: tuple[int, int]) -> int:
    high, wide = ((a - b) // 2 for a, b in zip(kernel, terms.shape(weight)[2:], strict=True))
    return terms.make("enlarge", (wide, wide, high, high), (weight,)) if high or wide else weight


def _with_biases(
    terms: Terms, graph: GraphView, pair: tuple[int, int]
) -> tuple[tuple[int, ...], list[int] | None]:
    """Return the sums with biases that alone read the two, and these biases.

    Or the two themselves and None.
    """
    roots, biases = [], []
    for number in pair:
        readers = graph.readers[number]
        reader = readers[0] if len(readers) == 1 else OUTSIDE
        if reader == OUTSIDE or terms[reader].kind != "ew_add":
            return pair, None
        own = graph.representative(number)
        other = [source for source in terms[reader].inputs if graph.representative(source) != own]
        if len(other) != 1 or not _is_bias(terms, other[0]):
            return pair, None
        roots.append(reader)
        biases.append(terms.bias(other[0]))
    return tuple(roots), biases


def merge_groups(terms: Terms, graph: GraphView) -> Iterator[Rewrite]:
    """A convolution of g groups as one of g/2.

    Group q reads channel block q mod 2, the other block has zeros.
    """
    for number in graph.order:
        here = terms[number]
        if here.kind != "conv2d" or here.data[3] % 2 or not terms[here.inputs[1]].free:
            continue
        wide = merged_filters(terms, here.inputs[1], here.data[3])
        new = terms.make("conv2d", (*here.data[:3], here.data[3] // 2), (here.inputs[0], wide))
        yield Rewrite("merge group convs", (number,), {number: new})


def merged_filters(terms: Terms, weight: int, groups: int) -> int:
    filters, width, *kernel = terms.shape(weight)
    shape = (groups // 2, 2, filters // groups, width, *kernel)
    pairs = aten(terms, "aten.reshape.default", term(weight), shape)
    halves = []
    for half in range(2):
        own = aten(terms, "aten.select.int", term(pairs), 1, half)
        zeros = aten(terms, "aten.zeros_like.default", term(own))
        blocks = (own, zeros) if half == 0 else (zeros, own)
        halves.append(aten(terms, "aten.cat.default", tuple(term(n) for n in blocks), 2))
    stacked = aten(terms, "aten.stack.default", tuple(term(n) for n in halves), 1)
    return aten(terms, "aten.reshape.default", term(stacked), (filters, 2 * width, *kernel))


SPECIALS = (conv_batch_norm, enlarge_merge, merge_groups)
