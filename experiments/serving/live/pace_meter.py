"""How fast this host is while an engine runs: a small step of the same kind, timed between the engine's own.

Neighbors on a shared host slow everything down for a while. What a fixed step takes says by how much, and
knows nothing of the requests that the engine serves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from experiments.models.gpt import Gpt
from experiments.serving.live.model import PagedGpt, Row, choose

#: Seconds between two readings at least: they take some hundredths of the time.
EVERY = 0.02
WIDTH, HEADS, VOCABULARY, POSITIONS, CONTEXT = 128, 4, 512, 64, 48
SIZE = 16


class PaceMeter:
    """Decodes a token by one layer on the processor, behind ``CONTEXT`` others.

    ``readings`` are the moments by ``clock`` at which it did, and the seconds that it took.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        with torch.random.fork_rng(devices=[]):
            body = Gpt(1, WIDTH, HEADS, VOCABULARY, POSITIONS)
        self._model = PagedGpt(body, HEADS, POSITIONS, "cpu")
        self._memory = self._model.memory(POSITIONS // SIZE, SIZE)
        self._row = Row([1], CONTEXT, range(POSITIONS // SIZE), 1)
        self._clock, self._last = clock, float("-inf")
        self.readings: list[tuple[float, float]] = []
        self._usual: float | None = None

    def tick(self) -> None:
        """Take a reading where the last one is long ago."""
        if self._clock() - self._last < EVERY:
            return
        self._decode()
        began = self._clock()
        self._decode()
        self._last = self._clock()
        self.readings.append((began, self._last - began))

    def _decode(self) -> None:
        choose(self._model.run([self._row], self._memory))

    def settle(self) -> None:
        """Take the pace of all readings until now for the usual one."""
        self._usual = self._mean(0)

    @property
    def usual(self) -> float:
        """Seconds of a reading at the usual pace."""
        assert self._usual is not None, "settle comes first"
        return self._usual

    def factor_since(self, reading: int) -> float:
        """How many times as long as usual readings took from the one of this number on."""
        return self._mean(reading) / self.usual

    def _mean(self, first: int) -> float:
        found = self.readings[first:] or self.readings[-1:]
        return statistics.fmean(seconds for _, seconds in found)
