"""Reversing a chain with few stored states: the order in which its units are run backward, and what is stored
when.

A chain of units 0..n-1 has states 0..n: state i is what unit i begins with, state 0 is always there. A
``Turn`` says: before units ``[start, stop)`` run backward, they run forward again from the latest state that
is stored, and the states ``store`` that are passed on the way are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.workloads.ragged import Ints


@dataclass(frozen=True)
class Turn:
    """Units ``[start, stop)`` are next to run backward; ``store`` are states kept on the way there."""

    start: int
    stop: int
    store: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reversal:
    """States ``kept`` by the first forward pass, and the turns in order (last units first)."""

    kept: tuple[int, ...]
    turns: tuple[Turn, ...]


def reverse_by_segments(units: int, kept: Sequence[int]) -> Reversal:
    """One level: the states ``kept`` (ascending) are borders, each segment between two is one turn."""
    edges = [0, *kept, units]
    turns = [Turn(a, b) for a, b in itertools.pairwise(edges) if b > a]
    return Reversal(tuple(kept), tuple(reversed(turns)))


def reverse_recursively(units: int, borders: int) -> Reversal:
    """Split into ``borders`` + 1 parts of nearly equal length, and each part again.

    The states between them are kept. Memory g(n) = k + g(n / (k + 1)), that is k log_{k+1} n states (Chen et
    al. 2016, section 4.4).
    """

    def split(start: int, stop: int, _: int) -> list[int]:
        parts = min(borders + 1, stop - start)
        return [start + (stop - start) * part // parts for part in range(1, parts)]

    return _reversal(units, borders, split)


def reverse_optimally(units: int, slots: int) -> Reversal:
    """The fewest forward steps with ``slots`` stored states besides state 0 (Griewank 1992)."""
    table = _costs(units, slots)

    def split(start: int, stop: int, free: int) -> list[int]:
        return [start + _first_part(table, stop - start, free)] if free and stop - start > 1 else []

    return _reversal(units, slots, split)


def _costs(length: int, slots: int) -> Ints:
    """Fewest extra forward steps t(l, c) to reverse l steps with c states besides the first: row c, column l.

    t(1, c) = 0, t(l, 0) = l (l - 1) / 2, t(l, c) = min over j of j + t(l - j, c - 1) + t(j, c).
    """
    lengths = np.arange(length + 1)
    table = np.zeros((slots + 1, length + 1), np.int64)
    table[0] = lengths * (lengths - 1) // 2
    for c in range(1, slots + 1):
        for steps in range(2, length + 1):
            table[c, steps] = _by_first_part(table, steps, c).min()
    return table


def _by_first_part(table: Ints, length: int, slots: int) -> Ints:
    """Extra steps when the first stored state is state 1, 2, ..., length - 1."""
    first = np.arange(1, length)
    found: Ints = first + table[slots - 1, length - first] + table[slots, first]
    return found


def _first_part(table: Ints, length: int, slots: int) -> int:
    return int(_by_first_part(table, length, slots).argmin()) + 1


def _reversal(units: int, slots: int, split: Callable[[int, int, int], list[int]]) -> Reversal:
    """Turns of the parts that ``split(start, stop, free slots)`` makes, each part split again; the last part
    first.
    """
    turns: list[Turn] = []
    todo: list[tuple[int, int, int, tuple[int, ...]]] = [(0, units, slots, ())]
    while todo:
        start, stop, free, store = todo.pop()
        borders = split(start, stop, free)
        if stop - start <= 1 or not borders:
            alone = [Turn(unit, unit + 1) for unit in reversed(range(start, stop))]
            turns += [replace(turn, store=store if turn is alone[0] else ()) for turn in alone]
            continue
        edges = [start, *borders, stop]
        parts = list(enumerate(itertools.pairwise(edges)))
        todo += [(a, b, free - part, ()) for part, (a, b) in parts[:-1]]
        part, (a, b) = parts[-1]
        todo.append((a, b, free - part, (*store, *borders)))
    return Reversal(turns[0].store, (replace(turns[0], store=()), *turns[1:])) if turns else Reversal((), ())
