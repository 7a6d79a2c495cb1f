"""Rules of the simulator that was published with G10 (MICRO 2023), an alternative to the main simulator's.
Plain frozen data.

A plan whose space is a ``Release`` is not carried out on the modeled machine but the way that simulator
would, oddities included: it exists so that published figures can be met and compared with what the same plan
does under real limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Release:
    """One of the published simulator's engines, see the subclasses.

    ``exceptions``: the laws (``plan.PLAN_LAWS``) that do not apply to what it does, each with the reason.
    """

    model: ClassVar[str] = ""
    exceptions: ClassVar[Mapping[str, str]] = {
        "causes": "the published simulator's clock is carried over as it is",
        "sent": "what leaves is decided while the published simulator runs",
        "links": "the published simulator's clock is carried over as it is",
    }


@dataclass(frozen=True)
class TwoEndedRelease(Release):
    """FlashNeuron's engine: offload through a storage link, prefetch decided while running.

    Pages are given out first fit from both ends.
    """

    model: ClassVar[str] = "two_ended_release"


@dataclass(frozen=True)
class WaitingRelease(Release):
    """The engine of G10-GDS and G10-Host: transfers as planned, reads wait in one queue for space.

    ``space_factor``: the allocator's range in capacities.
    """

    model: ClassVar[str] = "waiting_release"
    space_factor: float = 1.0


@dataclass(frozen=True)
class PagingRelease(Release):
    """The engine of UVM, DeepUM and G10, where blocks move on faults and on hints.

    A prefetch of what does not exist yet allocates it.

    ``lookahead``: kernels ahead whose tensors are prefetched, 0 for none.
    ``keeps_dead``: dead tensors are moved like live ones.
    ``block_bytes``: the resolution.
    """

    model: ClassVar[str] = "paging_release"
    lookahead: int = 0
    keeps_dead: bool = False
    block_bytes: int = 4 << 20
