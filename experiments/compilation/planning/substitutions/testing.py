"""Exact random testing of a rule: both sides in integers on many shapes that the source accepts.

The verdict is one of equal, equal where the target accepts the shapes too (with the equations that it adds),
and counterexample (kept with its shapes). Groups of convolutions above one, dims of 1 and unequal operands
come by themselves: shapes are random solutions of the source's equations (``dims``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from experiments.compilation.planning.substitutions.dims import Dims, IllTyped, infer_symbols
from experiments.compilation.planning.substitutions.evaluate import JoinedTensor, evaluate
from experiments.workloads.substitutions import Operand, Operator, Substitution

SHAPES = 30
LEAST_SHAPES = 25
MOST_ELEMENTS = 4096
LARGEST = 5
#: What a rule with grouped convolutions may need, the weakest first: all groups of one width with as many
#: filters each, or one group.
EQUAL_GROUPS, UNGROUPED = "equal groups", "ungrouped"
GUARDS = ("", EQUAL_GROUPS, UNGROUPED)
Shape = tuple[int, ...]
Ranks = Mapping[Operand, int]


@dataclass(frozen=True)
class Counterexample:
    """Shapes of the variables for which the two sides differ, and each convolution's number of groups."""

    shapes: tuple[tuple[str, Shape], ...]
    groups: tuple[int, ...]

    def __str__(self) -> str:
        text = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.shapes)
        return text + (f"; groups {', '.join(map(str, self.groups))}" if self.groups else "")


@dataclass(frozen=True)
class Tested:
    """``equal`` and ``refused`` count shapes on which both sides agreed, and that the target does not accept.

    ``added`` are the equations that the target adds to the source's. A rule with fewer than ``LEAST_SHAPES``
    equal shapes and no counterexample is not tested enough to be used.
    """

    equal: int = 0
    refused: int = 0
    with_groups: int = 0
    counterexample: Counterexample | None = None
    added: tuple[str, ...] = ()
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.counterexample is None and self.equal >= LEAST_SHAPES


def nominal_ranks(rule: Substitution) -> dict[Operand, int]:
    """One rank for all: four with images, else as few dims as the axes need, at least two."""
    axes = [op.parameter("axis", -1) for op in (*rule.source, *rule.target)]
    image = any(kind in rule.kinds for kind in ("conv2d", "pool2d_max", "pool2d_avg", "enlarge"))
    rank = 4 if image else max(2, -min(axes, default=-1))
    return dict.fromkeys(rule.variables, rank)


def examine(
    rule: Substitution,
    ranks: Ranks | None = None,
    *,
    guard: str = "",
    seed: int = 0,
    shapes: int = SHAPES,
) -> Tested:
    """Return the rule on ``shapes`` shapes of the source, and on as many that the target accepts as well.

    ``guard``, one of ``GUARDS``, restricts the source's convolutions.
    """
    if rule.unbound:
        names = ", ".join(str(variable.op) for variable in rule.unbound)
        return Tested(reason=f"the target reads {names}, which the source does not bind")
    ranks = ranks or nominal_ranks(rule)
    rng = np.random.default_rng(seed)
    found = Tested()
    try:
        for both in (False, True):
            dims, symbols = _equations(rule, ranks, guard, both)
            if both:
                found = replace(found, added=_added_equalities(rule, ranks))
            for shape in _solutions(dims, symbols, rng, shapes):
                found = _compare(rule, found, _values(shape, rng))
                if found.counterexample:
                    return found
    except IllTyped as error:
        return replace(found, reason=str(error))
    return found if found.passed else replace(found, reason=f"only {found.equal} shapes could be compared")


def _equations(
    rule: Substitution, ranks: Ranks, guard: str, both: bool
) -> tuple[Dims, dict[Operand, tuple[int, ...]]]:
    dims = Dims()
    symbols = {variable: dims.tensor(ranks[variable]) for variable in rule.variables}
    source = infer_symbols(rule.source, symbols, dims)
    if guard == UNGROUPED:
        for group in dims.groups:
            dims.equal(group, dims.new(1))
    if guard == EQUAL_GROUPS:
        _equal_groups(rule.source, source, dims)
    if both:
        target = infer_symbols(rule.target, symbols, dims)
        for mine, theirs in rule.outputs:
            dims.all_equal(source[mine], target[theirs], "output")
    return dims, symbols


def _equal_groups(side: Sequence[Operator], tensors: Mapping[Operand, tuple[int, ...]], dims: Dims) -> None:
    """All convolutions have filters of one width and as many of them in a group."""
    filters = [tensors[op.inputs[1]] for op in side if op.kind == "conv2d"]
    runs = [run for total, _, run in dims.products if any(total == f[0] for f in filters)]
    for one, other in pairwise(filters):
        dims.equal(one[1], other[1])
    for run, next_run in pairwise(runs):
        dims.equal(run, next_run)


def _solutions(
    dims: Dims, symbols: Mapping[Operand, tuple[int, ...]], rng: np.random.Generator, wanted: int
) -> Iterator[dict[Operand, Shape]]:
    """Up to ``wanted`` shapes of at most ``MOST_ELEMENTS`` each; none where so many tries find none."""
    made = 0
    for number in range(4 * wanted):
        if number == wanted and not made:
            return
        values = dims.solve(rng)
        if values is None:
            continue
        shapes = {v: tuple(values[symbol] for symbol in dimensions) for v, dimensions in symbols.items()}
        if all(prod(shape) <= MOST_ELEMENTS for shape in shapes.values()):
            yield shapes
            made += 1
        if made == wanted:
            return


def _values(shapes: Mapping[Operand, Shape], rng: np.random.Generator) -> dict[Operand, JoinedTensor]:
    return {v: JoinedTensor.of(rng.integers(-LARGEST, LARGEST + 1, shape)) for v, shape in shapes.items()}


def _compare(rule: Substitution, found: Tested, variables: dict[Operand, JoinedTensor]) -> Tested:
    try:
        source = evaluate(rule.source, variables)
    except IllTyped:
        return found
    groups = _groups(rule.source, source)
    try:
        target = evaluate(rule.target, variables)
    except IllTyped:
        return replace(found, refused=found.refused + 1)
    for mine, theirs in rule.outputs:
        if not np.array_equal(source[mine].array, target[theirs].array):
            shapes = tuple(
                (name(v), value.array.shape) for v, value in sorted(variables.items(), reverse=True)
            )
            return replace(found, counterexample=Counterexample(shapes, groups))
    return replace(
        found, equal=found.equal + 1, with_groups=found.with_groups + any(group > 1 for group in groups)
    )


def _groups(side: Sequence[Operator], values: Mapping[Operand, JoinedTensor]) -> tuple[int, ...]:
    return tuple(
        values[op.inputs[0]].array.shape[1] // values[op.inputs[1]].array.shape[1]
        for op in side
        if op.kind == "conv2d"
    )


def _added_equalities(rule: Substitution, ranks: Ranks) -> tuple[str, ...]:
    """Return equalities between dims of variables that the target needs and the source does not imply."""
    alone, symbols = _equations(rule, ranks, "", both=False)
    both, _ = _equations(rule, ranks, "", both=True)
    names = [
        (symbol, f"{name(variable)}.{axis}")
        for variable in reversed(rule.variables)
        for axis, symbol in enumerate(symbols[variable])
    ]
    implied, needed = alone.equality_test(), both.equality_test()
    found = []
    for place, (symbol, mine) in enumerate(names):
        for other, theirs in names[:place]:
            if needed(symbol, other) and not implied(symbol, other):
                found.append(f"{theirs} = {mine}")
                break
    return tuple(found)


def name(variable: Operand) -> str:
    return f"t{-variable.op}" + (f"_{variable.output}" if variable.output else "")
