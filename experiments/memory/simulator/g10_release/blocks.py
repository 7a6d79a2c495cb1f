"""Blocks of pages and where they are: on the device, on a tier, or nowhere."""

from __future__ import annotations

import sys

from experiments.memory.interface.paged import PagedStep
from experiments.memory.simulator.recorder import UNWATCHED, RunRecorder
from experiments.memory.simulator.report import TIMELINE

NOWHERE, DEVICE, HOST, STORAGE = range(4)


class ReleaseBlocks:
    """Every tensor is cut into blocks of ``block_bytes`` (the last may be shorter), numbered in tensor order.

    Lists by block: ``size``, ``tensor``, ``where``, ``moving`` (it waits in a queue to be moved).
    ``first[t]`` to ``first[t + 1]`` are the blocks of tensor ``t``, ``absent[t]`` how many of them are not on
    the device. ``used`` and ``on_host`` are bytes, ``held`` those on the device by kind (index in
    ``TIMELINE``).
    """

    def __init__(
        self, paged: PagedStep, block_bytes: int, kinds: list[int], recorder: RunRecorder = UNWATCHED
    ) -> None:
        self.recorder = recorder
        self.first = [0]
        self.size: list[int] = []
        self.tensor: list[int] = []
        for tensor, total in enumerate(paged.bytes):
            whole, rest = divmod(total, block_bytes)
            sizes = [block_bytes] * whole + ([rest] if rest else [])
            self.size += sizes
            self.tensor += [tensor] * len(sizes)
            self.first.append(len(self.size))
        count = len(self.size)
        self.where = bytearray(count)
        self.moving = bytearray(count)
        self.absent = [self.first[t + 1] - self.first[t] for t in range(paged.tensors)]
        self.kinds, self.held = kinds, [0] * len(TIMELINE)
        self.used = self.on_host = self.host_peak = 0
        self.arrivals: list[int] = []
        self._turn = [-1] * count
        self._oldest = self._looked = 0

    def of(self, tensor: int) -> range:
        return range(self.first[tensor], self.first[tensor + 1])

    def put(self, block: int, place: int) -> None:
        """The block is now in ``place``; on the device it is the youngest."""
        before, size = self.where[block], self.size[block]
        self.where[block] = place
        if before == HOST:
            self.on_host -= size
        elif before == DEVICE:
            self.used -= size
            self.held[self.kinds[self.tensor[block]]] -= size
            if self.recorder.watches:
                self.recorder.change(self.tensor[block], -size)
            self.absent[self.tensor[block]] += 1
        if place == HOST:
            self.on_host += size
            self.host_peak = max(self.host_peak, self.on_host)
        elif place == DEVICE:
            self.used += size
            self.held[self.kinds[self.tensor[block]]] += size
            if self.recorder.watches:
                self.recorder.change(self.tensor[block], size)
            self.absent[self.tensor[block]] -= 1
            self._turn[block] = len(self.arrivals)
            self.arrivals.append(block)

    def _gone(self, turn: int) -> bool:
        block = self.arrivals[turn]
        return self._turn[block] != turn or self.where[block] != DEVICE

    def oldest(self) -> int | None:
        """The block that arrived first and is not in motion."""
        arrivals = self.arrivals
        while self._oldest < len(arrivals):
            # One in motion is on its way out: it need not be looked at again.
            if not self._gone(self._oldest) and not self.moving[arrivals[self._oldest]]:
                return arrivals[self._oldest]
            self._oldest += 1
        return None

    def oldest_but(self, kept: list[int]) -> int | None:
        """The same, leaving out tensors that ``kept`` counts; ``look_again`` when ``kept`` has changed.

        Once all have been looked at there is none until then, even if more arrive: an oddity of the release.
        """
        arrivals = self.arrivals
        for turn in range(max(self._looked, self._oldest), len(arrivals)):
            block = arrivals[turn]
            if not kept[self.tensor[block]] and not self._gone(turn) and not self.moving[block]:
                self._looked = turn
                return block
        self._looked = sys.maxsize
        return None

    def look_again(self) -> None:
        self._looked = self._oldest
