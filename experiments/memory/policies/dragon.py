"""DRAGON (Markthub et al., SC 2018): the device and the host as caches over storage, filled by page faults.

Every tensor is a mapped file, so addresses are not used again. Faults side by side are coalesced, blocks that
follow in the file are read ahead in a window that doubles while faults are sequential, and dirty blocks reach
storage only when the host's cache overflows. The sizes are not in the paper's abstract: 2 MiB blocks, up to 8
coalesced or ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.interface.space import CACHED_STORAGE, DemandPaging, Paging, ReadAheadPaging
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Dragon(MemoryPolicy):
    """Demand paging over storage with coalesced faults and read-ahead.

    Writes are lazy, through a cache in host memory.
    """

    name: ClassVar[str] = "dragon"
    mechanism: ClassVar[str] = "page on demand"
    oversubscribes: ClassVar[bool] = True

    read_ahead: int = knob(8, "most blocks of 2 MiB fetched beyond a fault; 0: none", low=0, high=64)
    coalesced: int = knob(8, "most missing blocks side by side that are fetched by one fault", low=1, high=64)
    host_cache: bool = knob(True, "keep what passes through host memory there, and write it back lazily")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return MemoryPlan(space=self.paging())

    def paging(self) -> Paging:
        backing = CACHED_STORAGE if self.host_cache else "storage"
        if not self.read_ahead:
            return DemandPaging(backing=backing, coalesced=self.coalesced, reuse=False)
        return ReadAheadPaging(window=self.read_ahead, backing=backing, coalesced=self.coalesced, reuse=False)
