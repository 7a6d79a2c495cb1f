"""Mutants of a program of several operators: all programs of a few operators over the same inputs.

PET, OSDI 2021, section 4: programs are made depth first from a menu of operators; one is a mutant if it has
the original's shape and reads all its inputs, right or not. What is made is kept for larger programs unless a
smaller one with the same values is there. No input is read more often than the original does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.compilation.policies.pet.expressions import Indices
from experiments.compilation.policies.pet.multilinear import (
    Convolved,
    Input,
    Multilinear,
    Product,
    Sum,
    all_positions,
    elements_in,
)
from experiments.compilation.policies.pet.rearranged import (
    Composed,
    Joined,
    MergedRows,
    Permuted,
    SplitRows,
    transpose,
)

#: Positions by which programs of one shape are told apart (all, where it has no more), and how many times
#: larger than the original's largest tensor one of a mutant may be.
PROBES, GROWTH = 24, 4
Pair = tuple[int, int]


@dataclass(frozen=True)
class Menu:
    """What may be made of inputs: ``convolutions`` are the settings (stride, padding, dilation) in use."""

    convolutions: tuple[tuple[Pair, Pair, Pair], ...]
    batches: tuple[int, ...]

    def unary(self, of: Multilinear) -> Iterator[Multilinear]:
        """Yield what one operator makes of ``of``."""
        rank = len(of.shape)
        if rank in (2, 3) and not isinstance(of, Permuted):
            yield transpose(of)
        if rank == 3:
            yield MergedRows(of)
        if rank == 2:
            yield from (SplitRows(of, n) for n in self.batches if of.shape[0] % n == 0)

    def binary(self, left: Multilinear, right: Multilinear) -> Iterator[Multilinear]:
        """Yield what one operator makes of both, in this order."""
        if left.shape == right.shape:
            yield Sum(left, right)
        yield from self._join(left, right)
        if _can_multiply(left.shape, right.shape):
            yield Product(left, right)
        if len(left.shape) == len(right.shape) == 4:
            yield from self._convolve(left, right)

    @staticmethod
    def _join(left: Multilinear, right: Multilinear) -> Iterator[Multilinear]:
        if len(left.shape) != len(right.shape):
            return
        differing = [
            a for a, (one, other) in enumerate(zip(left.shape, right.shape, strict=True)) if one != other
        ]
        if len(differing) <= 1:
            axes = differing or range(min(2, len(left.shape)) if len(left.shape) == 4 else len(left.shape))
            yield from (Joined(left, right, axis) for axis in axes)

    def _convolve(self, left: Multilinear, right: Multilinear) -> Iterator[Multilinear]:
        if left.shape[1] == right.shape[1]:
            made = (Convolved(left, right, *settings) for settings in self.convolutions)
            yield from (one for one in made if min(one.shape) > 0)
        if left.shape[0] == right.shape[1]:
            yield Composed(left, right)


def _can_multiply(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    if not 2 <= len(right) <= len(left) <= 3 or left[-1] != right[-2]:
        return False
    return len(right) == 2 or left[:-2] == right[:-2]


def programs(original: Multilinear, operators: int) -> Iterator[Multilinear]:
    """Yield all mutants of up to so many operators, the smallest first."""
    menu, pool = _menu(original), _Pool(original)
    levels: list[list[Multilinear]] = [list(inputs_of(original))]
    for size in range(1, operators + 1):
        levels.append([])
        for made in _make(menu, levels, size):
            if not pool.allows(made):
                continue
            if made.shape == original.shape and set(made.leaves) == set(original.leaves) and made != original:
                yield made
            if size < operators and pool.is_new(made):
                levels[size].append(made)


def _make(menu: Menu, levels: Sequence[Sequence[Multilinear]], size: int) -> Iterator[Multilinear]:
    for one in levels[size - 1]:
        yield from menu.unary(one)
    for below in range(size):
        for left in levels[below]:
            for right in levels[size - 1 - below]:
                yield from menu.binary(left, right)


class _Pool:
    """What is known already, by shape and values at a few places."""

    def __init__(self, original: Multilinear) -> None:
        self._counts = original.leaves
        self._largest = GROWTH * max(elements_in(one.shape) for one in (original, *inputs_of(original)))
        self._known = {_values(original)}

    def allows(self, made: Multilinear) -> bool:
        """Whether it reads no input too often and is not too large."""
        return made.leaves <= self._counts and 0 < elements_in(made.shape) <= self._largest

    def is_new(self, made: Multilinear) -> bool:
        """Whether nothing has its values yet, the original included: what holds that is no shorter."""
        key = _values(made)
        fresh = key not in self._known
        self._known.add(key)
        return fresh


def _values(of: Multilinear) -> tuple[tuple[int, ...], bytes]:
    return of.shape, of.at(probes(of.shape), 0).tobytes()


@functools.cache
def probes(shape: tuple[int, ...]) -> Indices:
    """Return positions that stand for all of a shape."""
    if elements_in(shape) <= PROBES:
        return all_positions(shape)
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, size, PROBES) for size in shape], axis=1)


def inputs_of(program: Multilinear) -> list[Input]:
    """Return the program's inputs by their numbers, each once."""
    found: dict[int, Input] = {}
    waiting: list[Multilinear] = [program]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Input):
            found[one.number] = one
        waiting += one.sources
    return [found[number] for number in sorted(found)]


def _menu(original: Multilinear) -> Menu:
    """Return the settings of the original's convolutions, and of two in a row those of one for both."""
    settings: dict[tuple[Pair, Pair, Pair], None] = {}
    batches: dict[int, None] = {}
    waiting: list[Multilinear] = [original]
    while waiting:
        one = waiting.pop()
        waiting += one.sources
        if len(one.shape) == 3:
            batches[one.shape[0]] = None
        if isinstance(one, Convolved):
            settings[one.stride, one.padding, one.dilation] = None
            inner = one.source
            if isinstance(inner, Convolved) and inner.stride == inner.dilation == one.dilation == (1, 1):
                both = (one.padding[0] + inner.padding[0], one.padding[1] + inner.padding[1])
                settings[one.stride, both, (1, 1)] = None
    return Menu(tuple(settings), tuple(batches))
