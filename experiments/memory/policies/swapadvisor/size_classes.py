"""Layouts of a pool: which class of objects serves which tensor size, and how many objects each class has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats, Step

#: The smallest object.
SMALLEST = 512


@dataclass(frozen=True)
class Layout:
    """``serves[g]``: the class of the ``g``-th tensor size; ``counts[c]``: objects of class ``c``."""

    serves: tuple[int, ...]
    counts: tuple[int, ...]


def power_of_two(size: int) -> int:
    """The smallest class of a power of two that holds ``size`` bytes."""
    return max(SMALLEST, 1 << (size - 1).bit_length())


class SizeClasses:
    """The tensor sizes of a step and the classes they may be served by.

    And how many objects an op needs at least.

    ``exact`` classes are the sizes themselves (in granules), others powers of two.
    """

    def __init__(self, step: Step, capacity: int, exact: bool) -> None:
        sizes = np.unique(step.tensors.bytes[step.tensors.bytes > 0])
        self.groups: list[int] = sizes.tolist()
        granules = [-(-size // SMALLEST) * SMALLEST for size in self.groups]
        wanted = granules if exact else [power_of_two(size) for size in self.groups]
        self.bytes: list[int] = sorted(set(wanted))
        self.capacity = capacity - int(step.ops.workspace.max(initial=0))
        self.own = [self.bytes.index(size) for size in wanted]
        self.group_of: Ints = np.searchsorted(sizes, step.tensors.bytes)
        operands, live = self._demand(step)
        self._operands, self._live = operands.astype(np.float64), live.astype(np.float64)
        self._most_by_class: dict[tuple[str, tuple[int, ...]], Ints] = {}
        self._merge()

    def _demand(self, step: Step) -> tuple[Ints, Ints]:
        """(ops, groups): tensors of each size that an op uses, and that exist while it runs."""
        count, kinds = len(step.ops), len(self.groups)
        real = step.tensors.bytes[step.touched.values] > 0
        operands = np.zeros((count, kinds), np.int64)
        np.add.at(operands, (step.touched.rows()[real], self.group_of[step.touched.values[real]]), 1)
        change = np.zeros((count + 1, kinds), np.int64)
        used = (step.last_use >= 0) & (step.tensors.bytes > 0)
        local = used & ~step.persistent
        np.add.at(change, (step.first_use[local], self.group_of[local]), 1)
        np.add.at(change, (step.last_use[local] + 1, self.group_of[local]), -1)
        live = np.cumsum(change[:-1], axis=0)
        live += np.bincount(self.group_of[used & step.persistent], minlength=kinds)
        return operands, live

    def _merge(self) -> None:
        """While the objects that single ops need do not fit together, the class whose sizes are best served
        by the next larger class gives them to it.
        """
        need = self.total(self.least(self.own))
        while need > self.capacity:
            tried = []
            for kind in sorted(set(self.own))[:-1]:
                larger = min(other for other in self.own if other > kind)
                serves = [larger if own == kind else own for own in self.own]
                tried.append((self.total(self.least(serves)), serves))
            if not tried or min(tried)[0] >= need:
                return
            need, self.own = min(tried)

    def least(self, serves: Sequence[int]) -> Ints:
        """Objects of each class that some op needs at once."""
        return self._most("least", self._operands, tuple(serves))

    def most(self, serves: Sequence[int]) -> Ints:
        """Objects of each class with which nothing is ever evicted, in the order of the step."""
        return self._most("most", self._live, tuple(serves))

    def _most(self, name: str, by_group: Floats, serves: tuple[int, ...]) -> Ints:
        """The most of each class in any row of ``by_group``, whose floats hold counts exactly.

        Candidates share the few ``serves`` that there are.
        """
        key = name, serves
        if key not in self._most_by_class:
            # No product: a search makes hundreds, and threads of BLAS wait busily for the next.
            by_class = np.zeros((len(by_group), len(self.bytes)))
            for group, kind in enumerate(serves):
                by_class[:, kind] += by_group[:, group]
            self._most_by_class[key] = by_class.max(axis=0, initial=0).astype(np.int64)
        return self._most_by_class[key]

    def feasible(self, serves: Sequence[int]) -> bool:
        return self.total(self.least(serves)) <= self.capacity

    def total(self, counts: Ints) -> int:
        return int(np.array(self.bytes) @ counts)

    def first(self) -> Layout:
        """Return the first layout: every size in its own class.

        Each class has the same share of what it could use beyond its least.
        """
        least, most = self.least(self.own), self.most(self.own)
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            fits = self.total(least + np.floor((most - least) * middle).astype(np.int64)) <= self.capacity
            low, high = (middle, high) if fits else (low, middle)
        counts = least + np.floor((most - least) * low).astype(np.int64)
        return self.repair(self.own, counts)

    def repair(self, serves: Sequence[int], counts: Ints) -> Layout:
        """Take objects from the largest classes until all fit, then add them where they fit.

        The least of each stays.
        """
        least, most = self.least(serves), self.most(serves)
        counts = np.clip(counts, least, np.maximum(least, most))
        spare = self.capacity - self.total(counts)
        for kind in reversed(range(len(self.bytes))):
            if spare < 0:
                taken = min(int(counts[kind] - least[kind]), -(spare // self.bytes[kind]))
                counts[kind] -= taken
                spare += taken * self.bytes[kind]
        for kind in reversed(range(len(self.bytes))):
            added = max(0, min(int(most[kind] - counts[kind]), spare // self.bytes[kind]))
            counts[kind] += added
            spare -= added * self.bytes[kind]
        return Layout(tuple(serves), tuple(counts.tolist()))

    def cross(self, first: Layout, second: Layout, cut: float) -> Layout:
        """Return classes and sizes up to ``cut`` (a share) from one layout, the others from the other."""
        groups, kinds = int(cut * len(self.groups)), int(cut * len(self.bytes))
        serves = (*first.serves[:groups], *second.serves[groups:])
        if not self.feasible(serves):
            serves = first.serves
        return self.repair(serves, np.array((*first.counts[:kinds], *second.counts[kinds:]), np.int64))

    def mutate(self, layout: Layout, chance: float, random: np.random.Generator) -> Layout:
        """Return a layout changed at random, with ``chance`` for each change.

        A size goes to its own class or the next larger, and a class gives objects to another.
        """
        serves, kinds = list(layout.serves), len(self.bytes)
        for group in np.nonzero(random.random(len(serves)) < chance)[0].tolist():
            serves[group] = min(kinds - 1, self.own[group] + int(random.integers(2)))
        if not self.feasible(serves):
            serves = list(layout.serves)
        counts = np.array(layout.counts, np.int64)
        for kind in np.nonzero(random.random(kinds) < chance)[0].tolist():
            other, given = int(random.integers(kinds)), int(random.integers(1, counts[kind] + 2))
            counts[kind] -= given
            counts[other] += -(-given * self.bytes[kind] // self.bytes[other])
        return self.repair(serves, counts)
