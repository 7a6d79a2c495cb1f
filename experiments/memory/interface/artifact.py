"""Published artifacts' own rules of carrying out a plan, beside the main simulator's. Plain frozen data.

A plan that carries ``Artifact`` is not carried out on the modelled machine but the way the simulator of the G10
artifact (MICRO 2023) would, oddities included: it exists so that published figures can be met and compared with what
the same plan does under real limits.
"""

from __future__ import annotations

from dataclasses import dataclass

#: ``two_ended``: offload through a storage link with a first-fit allocator used from both ends, prefetch decided
#: while running (FlashNeuron). ``waiting``: transfers as planned, reads wait in one queue for space (G10-GDS, G10-Host).
#: ``paging``: blocks move on faults and on hints (UVM, DeepUM, G10).
ENGINES = ("two_ended", "waiting", "paging")


@dataclass(frozen=True)
class Artifact:
    """Which of the artifact's engines, and its options.

    ``space_factor``: the allocator's range in capacities (``waiting``). For ``paging``, where a prefetch of what does not
    exist yet allocates it: ``lookahead`` kernels ahead whose tensors are prefetched (0: none); ``keeps_dead``: dead
    tensors are moved like live ones; ``block_bytes`` the resolution.
    """

    engine: str
    space_factor: float = 1.0
    lookahead: int = 0
    keeps_dead: bool = False
    block_bytes: int = 4 << 20
