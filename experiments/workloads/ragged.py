"""Rows of different length in two numpy columns (compressed sparse rows)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints
    values: Ints

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        kept = [list(row) for row in rows]
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum([len(row) for row in kept], out=offsets[1:])
        return cls(offsets, np.array([value for row in kept for value in row], np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ints:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[row] for row in range(len(self)))

    def lists(self) -> list[list[int]]:
        """Every row as a list."""
        values, offsets = self.values.tolist(), self.offsets.tolist()
        return [values[start:end] for start, end in itertools.pairwise(offsets)]

    def take(self, rows: Sequence[int]) -> Ragged:
        """The rows of these indices, in this order."""
        chosen = np.asarray(rows, np.int64)
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return Ragged(offsets, self.values[places])

    def rows(self) -> Ints:
        """The row index of every value."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def transposed(self, columns: int) -> Ragged:
        """For each value ``v`` in ``0..columns-1`` the rows that hold it, ascending."""
        order = np.argsort(self.values, kind="stable")
        counts = np.bincount(self.values, minlength=columns)
        return Ragged(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), self.rows()[order])
