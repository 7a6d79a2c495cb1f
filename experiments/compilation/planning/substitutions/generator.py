"""TASO's generator (SOSP'19, section 3).

All small graphs over a few tensors, paired where they compute the same.

Tensors hold random integers; a graph's fingerprint is what it leaves unread: every value, the shape, and
where it was joined (which ``split`` depends on). Pairs are candidates: they are pruned (``pairs``), then
proved and tested. Unlike the released generator all graphs of a fingerprint are kept, not the first, relu is
relu (there, a polynomial), and no operator reads one tensor twice: a rule with such a one is a special case,
often of a rule with more operators.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.compilation.planning.substitutions.canonical import ALGEBRA, SAME
from experiments.compilation.planning.substitutions.dims import IllTyped
from experiments.compilation.planning.substitutions.evaluate import JoinedTensor, apply
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, silent
from experiments.workloads.substitutions import Operand, Operator

MOST_ELEMENTS, MOST_OUTPUTS, LARGEST = 512, 2, 9
SYMMETRIC = ("ew_add", "ew_mul")
Parameters = tuple[tuple[str, int], ...]
Print = int


@dataclass(frozen=True)
class Vocabulary:
    """The tensors that generated graphs may read, and the operators with their parameters.

    ``weights``, and what is made of these alone, are no data of a convolution.
    """

    tensors: tuple[tuple[int, ...], ...]
    operators: tuple[tuple[str, Parameters], ...]
    weights: frozenset[int] = frozenset()

    @property
    def sorts(self) -> Mapping[Operand, bool]:
        """Of every variable whether it is a weight; names are exchanged among variables of one sort."""
        return {Operand(-1 - i): i in self.weights for i in range(len(self.tensors))}


def _along(kinds: Sequence[str], *axes: int) -> tuple[tuple[str, Parameters], ...]:
    return tuple((kind, (("axis", axis),)) for kind in kinds for axis in axes)


_SQUARE = (4, 4)
_CONVOLUTION = ("conv2d", tuple(zip(ALGEBRA["conv2d"][1], (3, 3, 1, 1, SAME), strict=True)))
VOCABULARIES: Mapping[str, Vocabulary] = {
    "algebra": Vocabulary(
        (_SQUARE,) * 3,
        (("matmul", ()), ("transpose", ()), ("ew_add", ()), ("ew_mul", ()), ("relu", ())),
    ),
    "products": Vocabulary(
        (_SQUARE,) * 4,
        (("matmul", ()), ("ew_add", ()), ("relu", ()), *_along(("concat", "split"), -1, -2)),
    ),
    "convolutions": Vocabulary(
        ((1, 4, 5, 5),) * 2 + ((4, 4, 3, 3),) * 2,
        (_CONVOLUTION, ("ew_add", ()), ("relu", ()), *_along(("concat",), -3, -4), *_along(("split",), -3)),
        weights=frozenset({2, 3}),
    ),
}


@dataclass(frozen=True)
class Small:
    """A graph of a few operators.

    ``outputs`` are the tensors that none of them reads, by their fingerprints.
    """

    operators: tuple[Operator, ...]
    outputs: tuple[tuple[Print, Operand], ...]


def vocabulary(name: str) -> Vocabulary:
    if name not in VOCABULARIES:
        raise BadInput(f"unknown vocabulary {name!r}", "rules", "one of " + ", ".join(VOCABULARIES))
    return VOCABULARIES[name]


def equal_graphs(
    words: Vocabulary, depth: int, seed: int = 0, progress: Progress = silent
) -> list[list[Small]]:
    """Return all graphs of at most ``depth`` operators that compute what another one does, together.

    Fewest operators first.
    """
    found: dict[tuple[Print, ...], list[Small]] = defaultdict(list)
    first = len(list(_Enumeration(words, 1, seed).graphs()))
    done = 0
    for graph in _Enumeration(words, depth, seed).graphs():
        if len(graph.operators) == 1:
            done += 1
            progress(done / first, f"{sum(map(len, found.values()))} graphs")
        if len(graph.outputs) <= MOST_OUTPUTS:
            found[tuple(sorted(fingerprint for fingerprint, _ in graph.outputs))].append(graph)
    progress(1.0, f"{sum(map(len, found.values()))} graphs")
    groups = [sorted(group, key=lambda g: len(g.operators)) for group in found.values() if len(group) > 1]
    return sorted(groups, key=lambda group: sum(len(graph.operators) for graph in group[:2]))


class _Enumeration:
    """Depth-first over sequences of operators.

    Of two independent ones next to each other only one order is taken.
    """

    def __init__(self, words: Vocabulary, depth: int, seed: int) -> None:
        self.words, self.depth = words, depth
        rng = np.random.default_rng(seed)
        self.values = {
            Operand(-1 - i): JoinedTensor.of(rng.integers(-LARGEST, LARGEST + 1, shape))
            for i, shape in enumerate(words.tensors)
        }
        self.prints = {operand: _print(value) for operand, value in self.values.items()}
        self.weights = {operand for operand, weight in words.sorts.items() if weight}
        self.operators: list[Operator] = []
        self.read: list[Operand] = []

    def graphs(self) -> Iterator[Small]:
        for operator in self._candidates():
            made = self._results_of(operator)
            if made is None:
                continue
            self.operators.append(operator)
            self.read += operator.inputs
            self.values |= made
            self.prints |= {operand: _print(value) for operand, value in made.items()}
            constant = set(made) if self.weights.issuperset(operator.inputs) else set()
            self.weights |= constant
            yield self._graph()
            if len(self.operators) < self.depth:
                yield from self.graphs()
            self.weights -= constant
            for operand in made:
                del self.values[operand], self.prints[operand]
            del self.read[len(self.read) - len(operator.inputs) :]
            self.operators.pop()

    def _candidates(self) -> Iterator[Operator]:
        operands = sorted(self.values, reverse=True)
        for kind, parameters in self.words.operators:
            arity = ALGEBRA[kind][0]
            for inputs in itertools.permutations(operands, arity):
                if kind in SYMMETRIC and inputs[0] < inputs[1]:
                    continue
                operator = Operator(kind, inputs, parameters)
                if self._in_order(operator) and not (kind == "conv2d" and inputs[0] in self.weights):
                    yield operator

    def _in_order(self, operator: Operator) -> bool:
        """Return whether it reads the operator before it, or comes after it in the order of all operators."""
        if not self.operators or any(operand.op == len(self.operators) - 1 for operand in operator.inputs):
            return True
        return _place(operator) > _place(self.operators[-1])

    def _results_of(self, operator: Operator) -> dict[Operand, JoinedTensor] | None:
        """Its results; None where it refuses its inputs, gives what is there already, or too much."""
        try:
            values = apply(operator, [self.values[operand] for operand in operator.inputs])
        except IllTyped:
            return None
        if any(value.array.size > MOST_ELEMENTS or _print(value) in self.prints.values() for value in values):
            return None
        return {Operand(len(self.operators), output): value for output, value in enumerate(values)}

    def _graph(self) -> Small:
        unread = [operand for operand in self.values if not operand.is_variable and operand not in self.read]
        return Small(tuple(self.operators), tuple((self.prints[operand], operand) for operand in unread))


def _place(operator: Operator) -> tuple[str, Parameters, tuple[tuple[bool, int, int], ...]]:
    """Variables count from a, before results."""
    inputs = tuple((not read.is_variable, abs(read.op), read.output) for read in operator.inputs)
    return operator.kind, operator.parameters, inputs


def _print(value: JoinedTensor) -> Print:
    return hash((value.array.shape, value.joins, value.array.tobytes()))
