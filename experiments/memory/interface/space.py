"""How a plan wants device memory to be managed: one of ``CountedBytes``, ``MemoryPool``, ``Paging``,
``Release``. Frozen data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.memory.interface.release import Release

#: Allocators with addresses: ``first_fit`` and ``best_fit`` over one range; ``two_ended``: first fit, tensors
#: named in ``high`` from the top, all others from the bottom; ``classes``: objects of fixed sizes;
#: ``planned``: every address is decided ahead; ``caching``: a framework's, blocks kept in size bins and split
#: (torch's rules).
POOLS = ("first_fit", "best_fit", "two_ended", "classes", "planned", "caching")
#: Storage whose blocks pass through a cache of host memory.
CACHED_STORAGE = "cached_storage"
#: What tiers pages can be resident on off the device.
BACKINGS = ("host", "storage", CACHED_STORAGE, "remote")
EVICTIONS = ("lru", "fifo")


@dataclass(frozen=True)
class CountedBytes:
    """Bytes are counted against the capacity; nothing has an address."""

    model: ClassVar[str] = "counted"
    exceptions: ClassVar[Mapping[str, str]] = {}


@dataclass(frozen=True)
class MemoryPool:
    """An allocator over the device's capacity; sizes are rounded up to ``granularity`` bytes.

    ``high``: tensors served from the top (``two_ended``). ``classes``: (object bytes, objects) and
    ``serves``: (tensor, index of its class) for ``classes``; a tensor not named takes the smallest class that
    holds it. ``offsets``: (tensor, address) for ``planned``.
    """

    model: ClassVar[str] = "pool"
    exceptions: ClassVar[Mapping[str, str]] = {}
    kind: str
    granularity: int = 512
    high: tuple[int, ...] = ()
    classes: tuple[tuple[int, int], ...] = ()
    serves: tuple[tuple[int, int], ...] = ()
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Paging:
    """The device as a cache of blocks over ``backing``.

    What is fetched besides a missing block, the subclasses say.

    An op touches all blocks of its tensors in order. ``Prefetch`` moves are hints: the tensor's missing
    blocks are fetched overlapped with compute.

    ``fault_latency``  seconds, once for up to ``coalesced`` missing blocks side by side; their transfers come
                       on top.
    ``eviction``       ``lru`` (by last use) or ``fifo`` (by arrival).
    ``discard_dead``   blocks without a live byte are dropped, not written back.
    ``reuse``          addresses of dead tensors are given to new ones, as a framework's allocator does.
    ``preferred``      tensors whose blocks leave last.
    ``iterations``     steps in a row, of which the last is reported.
    ``exceptions``     the laws (``plan.PLAN_LAWS``) that do not apply to pages, each with the reason.
    """

    model: ClassVar[str] = ""
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "blocks are fetched at their first touch even where everything fits",
        "sent": "blocks leave when their place is needed, not by moves",
    }
    block_bytes: int = 2 << 20
    fault_latency: float = 45e-6
    coalesced: int = 1
    backing: str = "host"
    eviction: str = "lru"
    discard_dead: bool = False
    reuse: bool = True
    preferred: tuple[int, ...] = ()
    iterations: int = 2

    @property
    def tier(self) -> str:
        """Where blocks that leave end up."""
        return "storage" if self.backing == CACHED_STORAGE else self.backing


@dataclass(frozen=True, kw_only=True)
class DemandPaging(Paging):
    """Blocks come when they are missing, and on hints."""

    model: ClassVar[str] = "demand_paging"


@dataclass(frozen=True, kw_only=True)
class ReadAheadPaging(Paging):
    """A fault also fetches the blocks behind the missing one in address order, as a file is read ahead.

    ``window``: the most of them; it doubles from 1 on sequential faults.
    """

    model: ClassVar[str] = "read_ahead_paging"
    window: int


@dataclass(frozen=True, kw_only=True)
class CorrelationPaging(Paging):
    """Blocks of the next ``degree`` kernels are prefetched from what earlier steps touched."""

    model: ClassVar[str] = "correlation_paging"
    degree: int


@dataclass(frozen=True, kw_only=True)
class LinePaging(Paging):
    """A fault asks for the lines of its block as well, and the op goes on as soon as the first is there.

    ``line_bytes``  size of a line; they come in order.
    ``line_share``  the lines' share of the channel.
    ``ratio``       how much smaller blocks are in motion.
    """

    model: ClassVar[str] = "line_paging"
    line_bytes: int
    line_share: float = 0.25
    ratio: float = 1.0


Space = CountedBytes | MemoryPool | Paging | Release
