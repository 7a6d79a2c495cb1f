"""Dims of a rule's tensors as unknowns under equations, and random positive solutions of them.

Each side of a rule is typed symbolically: an addition makes dims equal, a concatenation adds two, a
convolution of g groups multiplies (channels = g x width of a filter). Solving them gives shapes of any sizes
that the side accepts: dims of 1, unequal operands, groups above one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiments.compilation.planning.substitutions.canonical import EXPLICIT, SAME, VALID
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator

Symbols = tuple[int, ...]
#: Values tried for a dim, and for the number of groups of a convolution.
SIZES = (1, 2, 3, 4, 5)
GROUPS = (1, 1, 2, 3)
MOST_ATTEMPTS = 60


class IllTyped(BadInput):
    """An operator that does not accept its inputs' shapes."""

    def __init__(self, operator: str, what: str) -> None:
        super().__init__(what, operator, "shapes that it accepts")


@dataclass(frozen=True)
class WindowDims:
    """``out`` positions of a kernel along ``size``; ``pad`` as the algebra spells it."""

    out: int
    size: int
    kernel: int
    stride: int
    pad: int

    def positions(self, size: int) -> int:
        if self.pad == SAME:
            return -(-size // self.stride)
        return (size + 2 * max(self.pad - EXPLICIT, 0) - self.kernel) // self.stride + 1


@dataclass
class Dims:
    """Unknown dims (union-find) with the equations among them.

    Numbers are unknowns that are solved already.
    """

    parent: list[int] = field(default_factory=list)
    value: list[int | None] = field(default_factory=list)
    sums: list[tuple[int, int, int]] = field(default_factory=list)
    products: list[tuple[int, int, int]] = field(default_factory=list)
    windows: list[WindowDims] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    kernels: dict[int, int] = field(default_factory=dict)

    def new(self, value: int | None = None) -> int:
        self.parent.append(len(self.parent))
        self.value.append(value)
        return len(self.parent) - 1

    def root(self, symbol: int) -> int:
        while self.parent[symbol] != symbol:
            symbol = self.parent[symbol]
        return symbol

    def equal(self, a: int, b: int) -> None:
        a, b = sorted((self.root(a), self.root(b)))
        if a == b:
            return
        if None not in (self.value[a], self.value[b]) and self.value[a] != self.value[b]:
            raise IllTyped("dims", f"{self.value[a]} is not {self.value[b]}")
        self.value[a] = self.value[b] if self.value[a] is None else self.value[a]
        self.parent[b] = a

    def tensor(self, rank: int) -> Symbols:
        return tuple(self.new() for _ in range(rank))

    def all_equal(self, left: Symbols, right: Symbols, what: str) -> None:
        if len(left) != len(right):
            raise IllTyped(what, f"{len(left)} and {len(right)} dims")
        for a, b in zip(left, right, strict=True):
            self.equal(a, b)

    def equality_test(self) -> Callable[[int, int], bool]:
        """Return whether the equalities and sums alone make two unknowns equal.

        By linear algebra; products are left out.
        """
        count = len(self.parent)
        rows = [(symbol, self.root(symbol)) for symbol in range(count) if self.root(symbol) != symbol]
        matrix = np.zeros((len(rows) + len(self.sums), count))
        for row, (a, b) in enumerate(rows):
            matrix[row, [a, b]] = 1, -1
        for row, (total, a, b) in enumerate(self.sums, len(rows)):
            np.add.at(matrix[row], [total, a, b], [1, -1, -1])
        _, values, vectors = np.linalg.svd(matrix) if len(matrix) else (None, np.zeros(0), np.eye(count))
        basis = vectors[: int((values > 1e-9).sum())]

        def equal(a: int, b: int) -> bool:
            difference = np.zeros(count)
            difference[a] += 1
            difference[b] -= 1
            return bool(np.linalg.norm(difference - basis.T @ (basis @ difference)) < 1e-6)

        return equal

    def solve(self, rng: np.random.Generator) -> list[int] | None:
        """Return a value of at least 1 for every unknown, at random; None where none was found."""
        roots = [self.root(symbol) for symbol in range(len(self.parent))]
        merged = self._merged(roots)
        for _ in range(MOST_ATTEMPTS):
            found = merged.attempt(rng)
            if found is not None:
                return [found[root] for root in roots]
        return None

    def _merged(self, roots: Sequence[int]) -> _Merged:
        def by_root(equation: tuple[int, int, int]) -> tuple[int, int, int]:
            total, a, b = equation
            return roots[total], roots[a], roots[b]

        return _Merged(
            {i: value for i, value in enumerate(self.value) if value is not None and roots[i] == i},
            [roots[symbol] for symbol in self.groups],
            sorted(set(roots)),
            [by_root(equation) for equation in self.sums],
            [by_root(equation) for equation in self.products],
            [replace(window, out=roots[window.out], size=roots[window.size]) for window in self.windows],
            [(roots[symbol], most) for symbol, most in self.kernels.items()],
        )


@dataclass(frozen=True)
class _Merged:
    """The unknowns of ``Dims`` that are left once equal ones are one, and the equations among them."""

    solved: Mapping[int, int]
    groups: Sequence[int]
    unknowns: Sequence[int]
    sums: Sequence[tuple[int, int, int]]
    products: Sequence[tuple[int, int, int]]
    windows: Sequence[WindowDims]
    kernels: Sequence[tuple[int, int]]

    def attempt(self, rng: np.random.Generator) -> dict[int, int] | None:
        """Return values drawn one after another, with what follows from each; None at a contradiction."""
        known = dict(self.solved)
        order = [*self.groups, *(self.unknowns[i] for i in rng.permutation(len(self.unknowns)))]
        changed = True
        for symbol in order:
            if changed and not self._propagate(known):
                return None
            changed = symbol not in known
            if changed:
                choices = GROUPS if symbol in self.groups else SIZES
                known[symbol] = choices[rng.integers(len(choices))]
        return known if self._propagate(known) and self._is_centered(known) else None

    def _is_centered(self, known: dict[int, int]) -> bool:
        """Return kernels that are enlarged stay centered: they are no larger and of the same parity."""
        return all(known[root] <= most and known[root] % 2 == most % 2 for root, most in self.kernels)

    def _propagate(self, known: dict[int, int]) -> bool:
        """Fill in what the equations say; False where they contradict each other."""
        before = -1
        while before != len(known):
            before = len(known)
            for equation in self.sums:
                if not self._sum(equation, known):
                    return False
            for equation in self.products:
                if not self._product(equation, known):
                    return False
            for window in self.windows:
                if not self._window(window, known):
                    return False
        return True

    def _sum(self, equation: tuple[int, int, int], known: dict[int, int]) -> bool:
        total, a, b = equation
        if a in known and b in known:
            return known.setdefault(total, known[a] + known[b]) == known[a] + known[b]
        for one, other in ((a, b), (b, a)):
            if total in known and one in known:
                known[other] = known[total] - known[one]
                return known[other] >= 1
        return known.get(total, 2) >= 2

    def _product(self, equation: tuple[int, int, int], known: dict[int, int]) -> bool:
        total, a, b = equation
        if a in known and b in known:
            return known.setdefault(total, known[a] * known[b]) == known[a] * known[b]
        for one, other in ((a, b), (b, a)):
            if total in known and one in known:
                known[other], remainder = divmod(known[total], known[one])
                return remainder == 0 and known[other] >= 1
        return True

    def _window(self, window: WindowDims, known: dict[int, int]) -> bool:
        size, out = window.size, window.out
        if size not in known:
            return True
        positions = window.positions(known[size])
        return positions >= 1 and known.setdefault(out, positions) == positions


def infer_symbols(
    side: Sequence[Operator], tensors: Mapping[Operand, Symbols], dims: Dims
) -> dict[Operand, Symbols]:
    """Return the symbols of every tensor of a side; its equations are added to ``dims``."""
    found = dict(tensors)
    for index, operator in enumerate(side):
        inputs = [found[operand] for operand in operator.inputs]
        for output, symbols in enumerate(_outputs(operator, inputs, dims)):
            found[Operand(index, output)] = symbols
    return found


def _outputs(operator: Operator, inputs: list[Symbols], dims: Dims) -> list[Symbols]:
    kind, x = operator.kind, inputs[0]
    if kind == "relu":
        return [x]
    if kind in ("ew_add", "ew_mul"):
        dims.all_equal(x, inputs[1], kind)
        return [x]
    if kind == "matmul":
        return [_matmul(x, inputs[1], dims)]
    if kind == "transpose":
        return [(*x[:-2], x[-1], x[-2])]
    if kind == "concat":
        return [_concat(x, inputs[1], operator.parameter("axis"), dims)]
    if kind == "split":
        return _split(x, operator.parameter("axis"), dims)
    if len(x) != 4:
        raise IllTyped(kind, f"{len(x)} dims, not 4")
    if kind == "conv2d":
        return [_convolution(operator, x, inputs[1], dims)]
    if kind.startswith("pool2d"):
        return [(*x[:2], *_windows(operator, x, dims))]
    wanted = (operator.parameter("kernel_h"), operator.parameter("kernel_w"))
    dims.kernels |= dict(zip(x[2:], wanted, strict=True))
    return [(*x[:2], *(dims.new(size) for size in wanted))]


def _matmul(x: Symbols, y: Symbols, dims: Dims) -> Symbols:
    if len(x) < 2 or len(y) not in (2, len(x)):
        raise IllTyped("matmul", f"{len(x)} and {len(y)} dims")
    dims.equal(x[-1], y[-2])
    if len(y) > 2:
        dims.all_equal(x[:-2], y[:-2], "matmul")
    return (*x[:-1], y[-1])


def _concat(x: Symbols, y: Symbols, axis: int, dims: Dims) -> Symbols:
    if len(x) != len(y) or len(x) < -axis:
        raise IllTyped("concat", f"{len(x)} and {len(y)} dims, axis {axis}")
    total, place = dims.new(), len(x) + axis
    dims.sums.append((total, x[axis], y[axis]))
    dims.all_equal(x[:place] + x[place + 1 :], y[:place] + y[place + 1 :], "concat")
    return (*x[:place], total, *x[place + 1 :])


def _split(x: Symbols, axis: int, dims: Dims) -> list[Symbols]:
    """Return where it cuts is not known symbolically.

    The newest concatenation of that size says it, if one does.
    """
    place = len(x) + axis
    if place < 0:
        raise IllTyped("split", f"{len(x)} dims, axis {axis}")
    joins = [equation for equation in dims.sums if dims.root(equation[0]) == dims.root(x[axis])]
    parts = joins[-1][1:] if joins else (dims.new(), dims.new())
    if not joins:
        dims.sums.append((x[axis], *parts))
    return [(*x[:place], part, *x[place + 1 :]) for part in parts]


def _convolution(operator: Operator, x: Symbols, w: Symbols, dims: Dims) -> Symbols:
    if len(w) != 4:
        raise IllTyped("conv2d", f"a filter of {len(w)} dims, not 4")
    groups, width = dims.new(), dims.new()
    dims.groups.append(groups)
    dims.products += [(x[1], groups, w[1]), (w[0], groups, width)]
    dims.equal(w[2], dims.new(operator.parameter("kernel_h")))
    dims.equal(w[3], dims.new(operator.parameter("kernel_w")))
    return (x[0], w[0], *_windows(operator, x, dims))


def _windows(operator: Operator, x: Symbols, dims: Dims) -> Symbols:
    found = []
    for side, axis in (("h", 2), ("w", 3)):
        stride, pad = operator.parameter(f"stride_{side}"), operator.parameter("pad")
        kernel = operator.parameter(f"kernel_{side}")
        if (pad == SAME or (pad == VALID and kernel == 1)) and stride == 1:
            found.append(x[axis])
            continue
        out = dims.new()
        dims.windows.append(WindowDims(out, x[axis], kernel, stride, pad))
        found.append(out)
    return tuple(found)
