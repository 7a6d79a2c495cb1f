"""Random numbers of a part of a population, as they are when those of all of it are drawn in order.

A generation that is divided has the numbers of one that is not: who works on a part skips those of others.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Part(NamedTuple):
    """Matrices ``first`` to ``end`` of ``total``."""

    first: int
    end: int
    total: int

    @property
    def rows(self) -> slice:
        """Where they are."""
        return slice(self.first, self.end)

    def draw(self, rng: np.random.Generator, times: int, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Return this part of ``times`` random arrays of ``shape`` for each matrix of the population."""
        size = math.prod(shape)
        drawn = np.empty((times, self.end - self.first, *shape), np.float32)
        for each in drawn:
            skip(rng, self.first * size)
            rng.random(out=each, dtype=np.float32)
            skip(rng, (self.total - self.end) * size)
        return drawn


def parts_of(total: int, parts: int) -> list[Part]:
    """Divide so many matrices as evenly as can be, into no empty parts."""
    ends = [total * place // parts for place in range(parts + 1)]
    return [Part(first, end, total) for first, end in pairwise(ends) if first < end]


def skip(rng: np.random.Generator, draws: int) -> None:
    """Leave out so many numbers of single precision, two of which are made of one step of the generator."""
    bits = rng.bit_generator
    assert isinstance(bits, np.random.PCG64)
    if draws and bits.state["has_uint32"]:
        rng.random(dtype=np.float32)
        draws -= 1
    if draws:
        bits.advance(draws // 2)
        if draws % 2:
            rng.random(dtype=np.float32)
