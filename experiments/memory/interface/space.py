"""How a plan wants device memory to be managed: an allocator with addresses, or demand paging. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass

#: Allocators with addresses: ``first_fit`` and ``best_fit`` over one range; ``two_ended``: first fit, tensors named in
#: ``high`` from the top, all others from the bottom; ``classes``: objects of fixed sizes; ``planned``: every address
#: is decided ahead; ``caching``: a framework's, blocks kept in size bins and split (torch's rules).
POOLS = ("first_fit", "best_fit", "two_ended", "classes", "planned", "caching")


@dataclass(frozen=True)
class Pool:
    """An allocator over the device's capacity; sizes are rounded up to ``granularity`` bytes.

    ``high``: tensors served from the top (``two_ended``). ``classes``: (object bytes, objects) and ``serves``: (tensor,
    index of its class) for ``classes``; a tensor not named takes the smallest class that holds it. ``offsets``:
    (tensor, address) for ``planned``.
    """

    kind: str
    granularity: int = 512
    high: tuple[int, ...] = ()
    classes: tuple[tuple[int, int], ...] = ()
    serves: tuple[tuple[int, int], ...] = ()
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Paging:
    """The device is a cache of blocks over ``backing`` (a tier); an op touches all blocks of its tensors in order.

    Up to ``coalesced`` missing blocks side by side are one fault: ``fault_latency`` seconds once, and their transfers.
    ``eviction``: ``lru`` (by last use) or ``fifo`` (by arrival). ``read_ahead``: blocks fetched beyond a missing one in
    address order, doubling from 1 to this on sequential faults. ``correlation``: kernels ahead whose blocks are
    prefetched from what earlier steps did (0: none). ``discard_dead``: blocks without a live byte are dropped, not
    written back. ``Prefetch`` moves are hints: the tensor's missing blocks are fetched beside compute.
    ``cached_in_host``: storage's blocks pass through a cache of host memory. ``reuse``: addresses of dead tensors are
    given to new ones, as a framework's allocator does. Blocks of ``preferred`` tensors leave last. Blocks in
    motion are shrunk by ``ratio``. With ``line_bytes`` > 0 a fault asks for the lines of its block as well: they get
    ``line_share`` of the channel, in order, and the op goes on as soon as the first is there. The last of ``iterations`` steps is reported.
    """

    block_bytes: int = 2 << 20
    fault_latency: float = 45e-6
    coalesced: int = 1
    backing: str = "host"
    eviction: str = "lru"
    read_ahead: int = 0
    correlation: int = 0
    discard_dead: bool = False
    cached_in_host: bool = False
    reuse: bool = True
    preferred: tuple[int, ...] = ()
    ratio: float = 1.0
    line_bytes: int = 0
    line_share: float = 0.25
    iterations: int = 2
