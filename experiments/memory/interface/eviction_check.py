"""What can be wrong with a reactive policy's answer, whatever the device's speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.memory.interface.plan import TIERS
from experiments.memory.interface.policy import Eviction, Resident


def eviction_faults(chosen: Sequence[Eviction], resident: Sequence[Resident]) -> list[str]:
    """Return complaints about what ``chosen`` sends away, when only ``resident`` may leave, each once."""
    return list(_faults(chosen, resident))


def _faults(chosen: Sequence[Eviction], resident: Sequence[Resident]) -> Iterator[str]:
    allowed = {entry.tensor for entry in resident}
    for eviction in chosen:
        if eviction.tensor not in allowed:
            yield f"the policy evicts tensor {eviction.tensor}, which cannot leave"
        allowed.discard(eviction.tensor)
        if eviction.tier not in TIERS:
            yield f"the policy evicts to {eviction.tier!r}, which is none of {', '.join(TIERS)}"
