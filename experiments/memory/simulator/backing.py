"""Where blocks are resident off the device: on a tier, for storage also behind a cache of host memory."""

from __future__ import annotations

from collections import OrderedDict

from experiments.core.errors import Infeasible
from experiments.memory.interface.space import CACHED_STORAGE, LinePaging, Paging
from experiments.memory.simulator.channels import TierChannels
from experiments.memory.simulator.pools.blocks import AddressBlocks
from experiments.memory.simulator.prepared import Prepared


class Backing:
    """Copies of blocks on the tier of ``paging``; persistent tensors begin there.

    Transfers are shrunk by ``ratio``; where lines share the channel with blocks, blocks take longer
    (``crowding``). With cached storage what passes through the host stays there, least recently used
    first to go, and reaches storage only when it is pushed out (lazy writes).
    """

    def __init__(
        self, prepared: Prepared, paging: Paging, blocks: AddressBlocks, channels: TierChannels
    ) -> None:
        machine = prepared.machine
        self.tier, self.blocks, self.channels = paging.tier, blocks, channels
        rooms = {"host": machine.host_bytes, "storage": machine.storage_bytes, "remote": machine.remote_bytes}
        self.room = rooms[self.tier]
        self.stored: set[int] = set()
        self.stored_bytes = 0
        self.ratio, self.crowding = 1.0, 1.0
        if isinstance(paging, LinePaging):
            self.ratio, self.crowding = paging.ratio, 1.0 / (1.0 - paging.line_share)
        cached = paging.backing == CACHED_STORAGE
        self.cache: OrderedDict[int, bool] | None = OrderedDict() if cached else None
        self.cached_bytes, self.cache_room = 0, machine.host_bytes
        self.host_peak = 0
        for tensor in prepared.persistent:
            for block in blocks.of(tensor):
                self._store(block)

    def holds(self, block: int) -> bool:
        """Whether there is content to fetch."""
        return block in self.stored or (self.cache is not None and block in self.cache)

    def fetch(self, block: int, ready: float) -> float:
        """Queue the copy of ``block`` to the device; when it is there."""
        size = self.blocks.size[block] / self.ratio * self.crowding
        if self.cache is None:
            return self.channels.back(size, self.tier, ready)
        if block in self.cache:
            self.cache.move_to_end(block)
            return self.channels.back(size, "host", ready)
        end = self.channels.back(size, self.tier, ready)
        self._cache(block, False, end)
        return end

    def write(self, block: int, ready: float) -> float:
        """Queue the copy of ``block`` from the device; when its device bytes are free."""
        size = self.blocks.size[block] / self.ratio
        if self.cache is None:
            end = self.channels.out(size, self.tier, ready)
            self._store(block)
            return end
        end = self.channels.out(size, "host", ready)
        self._cache(block, True, end)
        return end

    def forget(self, block: int) -> None:
        """The content of ``block`` is needed no more."""
        if block in self.stored:
            self.stored.discard(block)
            self.stored_bytes -= self.blocks.size[block]
        if self.cache is not None and self.cache.pop(block, None) is not None:
            self.cached_bytes -= self.blocks.size[block]

    def _store(self, block: int) -> None:
        if block in self.stored:
            return
        self.stored.add(block)
        self.stored_bytes += self.blocks.size[block]
        if self.tier == "host":
            self.host_peak = max(self.host_peak, self.stored_bytes)
        if self.stored_bytes > self.room:
            missing = self.stored_bytes - self.room
            raise Infeasible(f"{self.tier} lacks {missing} bytes of {self.room}", self.tier, missing)

    def _cache(self, block: int, dirty: bool, time: float) -> None:
        """Keep ``block`` in host memory; what is pushed out and not yet on storage is written there."""
        assert self.cache is not None
        if block not in self.cache:
            self.cached_bytes += self.blocks.size[block]
        self.cache[block] = dirty or self.cache.get(block, False)
        self.cache.move_to_end(block)
        while self.cached_bytes > self.cache_room:
            old, changed = self.cache.popitem(last=False)
            self.cached_bytes -= self.blocks.size[old]
            if changed:
                self.channels.spill(self.blocks.size[old], time)
                self._store(old)
        self.host_peak = max(self.host_peak, self.cached_bytes)
