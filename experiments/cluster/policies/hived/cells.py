"""Physical cells and their buddy allocation.

A chain is all nodes with equally many devices, of one type where tenants own cells of a type; its levels are
the sizes of its cells, halves of halves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from experiments.cluster.interface import Machines


class Level(NamedTuple):
    """Cells of ``size`` devices, of a type where ``device`` names one."""

    size: int
    device: str = ""

    def __str__(self) -> str:
        return f"{self.size} {self.device} GPUs" if self.device else f"{self.size} GPUs"


class Cell(NamedTuple):
    """``size`` devices from ``first`` on."""

    first: int
    size: int

    @property
    def devices(self) -> range:
        return range(self.first, self.first + self.size)


def levels_of(size: int) -> tuple[int, ...]:
    """Sizes of the cells of a node, the node first: halves while they are even, then single devices."""
    found = [size]
    while found[-1] > 1:
        found.append(found[-1] // 2 if found[-1] % 2 == 0 else 1)
    return tuple(found)


@dataclass
class Chain:
    """The nodes that begin at ``nodes``, and their free cells by size; ``device`` is their type, if told."""

    levels: tuple[int, ...]
    nodes: Sequence[int]
    device: str = ""
    free: dict[int, set[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.free = {size: set() for size in self.levels}
        self.free[self.levels[0]] = set(self.nodes)

    def lack(self, wanted: Mapping[int, int]) -> tuple[int, int] | None:
        """The highest level at which cells for ``wanted`` (by size) are missing, and how many."""
        left = 0
        for above, size in pairwise((self.levels[0], *self.levels)):
            left = left * (above // size) + len(self.free[size]) - wanted.get(size, 0)
            if left < 0:
                return size, -left
        return None

    def allocate(
        self,
        size: int,
        reserved: Mapping[int, int],
        is_good: Callable[[Cell], bool],
        cost: Callable[[Cell], int],
    ) -> Cell | None:
        """Take a good cell of ``size`` of the lowest cost, from the smallest free one that can be split.

        Afterwards there are still cells for all that is ``reserved``; ``None`` where no choice leaves them.
        """
        for above in reversed(self.levels):
            if above < size:
                continue
            parts = [part for first in self.free[above] for part in _parts(Cell(first, above), size)]
            for cell in sorted(filter(is_good, parts), key=lambda one: (cost(one), one)):
                self.claim(cell)
                if self.lack(reserved) is None:
                    return cell
                self.release(cell)
        return None

    def cell_around(self, devices: Sequence[int], size: int) -> Cell | None:
        """The cell of ``size`` that contains all ``devices``, if one does."""
        if size not in self.levels or not self.nodes or devices[0] < min(self.nodes):
            return None
        cell = self._around(Cell(devices[0], 1))(size)
        return cell if devices[-1] in cell.devices else None

    def is_free(self, cell: Cell) -> bool:
        """Whether nobody has any of ``cell``."""
        above = self.levels[: self.levels.index(cell.size) + 1]
        return any(one.first in self.free[one.size] for one in map(self._around(cell), above))

    def claim(self, cell: Cell) -> None:
        """Split the free cell that contains ``cell`` until it is one itself."""
        levels = self.levels[: self.levels.index(cell.size) + 1]
        holder = next(
            one for one in map(self._around(cell), reversed(levels)) if one.first in self.free[one.size]
        )
        self.free[holder.size].remove(holder.first)
        for below in levels[levels.index(holder.size) + 1 :]:
            kept = self._around(cell)(below)
            self.free[below] |= {part.first for part in _parts(holder, below) if part != kept}
            holder = kept

    def release(self, cell: Cell) -> None:
        """Free a cell, and merge it with its buddies where all of them are free."""
        self.free[cell.size].add(cell.first)
        at = self.levels.index(cell.size)
        if at == 0:
            return
        parent = self._around(cell)(self.levels[at - 1])
        buddies = {part.first for part in _parts(parent, cell.size)}
        if buddies <= self.free[cell.size]:
            self.free[cell.size] -= buddies
            self.release(parent)

    def _around(self, cell: Cell) -> Callable[[int], Cell]:
        """The cell of a size that contains ``cell``."""
        node = max(first for first in self.nodes if first <= cell.first)
        return lambda size: Cell(node + (cell.first - node) // size * size, size)


def _parts(cell: Cell, size: int) -> Iterator[Cell]:
    return (Cell(first, size) for first in range(cell.first, cell.first + cell.size, size))


def chains_of(machines: Machines, *, by_type: bool = False) -> dict[Level, Chain]:
    """The chains by their nodes, the smallest first."""
    nodes: dict[Level, list[int]] = {}
    for first, node in zip(machines.first, machines, strict=True):
        if node.gpus:
            nodes.setdefault(Level(node.gpus, node.device if by_type else ""), []).append(first)
    return {node: Chain(levels_of(node.size), nodes[node], node.device) for node in sorted(nodes)}
