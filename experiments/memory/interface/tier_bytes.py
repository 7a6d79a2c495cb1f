"""How many bytes of copies a plan keeps on each tier, counted without times."""

from __future__ import annotations

from experiments.core.units import human
from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.plan import TIERS
from experiments.workloads.step import Step

#: Tiers whose content can be used where it is resident.
BYTE_ADDRESSABLE = ("host", "remote")


class TierBytes:
    """Bytes of the copies on each tier whatever the speed of the links.

    At any time a run holds these and more.
    """

    def __init__(self, step: Step, machine: MemoryMachine) -> None:
        self.sizes: list[int] = step.tensors.bytes.tolist()
        self.machine = machine
        self.held = dict.fromkeys(TIERS, 0.0)
        self.copies: dict[int, tuple[str, float]] = {}

    def put(self, tensor: int, tier: str, ratio: float) -> str:
        """Count a copy of ``tensor`` on ``tier``; return why it does not fit, or an empty string."""
        page, size = self.machine.tier_page(tier), self.sizes[tensor] / ratio
        size = size if page == 1 else -(-size // page) * page
        self.copies[tensor] = (tier, size)
        self.held[tier] += size
        missing = self.held[tier] - self.machine.tier_bytes(tier)
        return f"{tier} lacks {missing:.0f} bytes ({human(missing, 'bytes')})" if missing > 0 else ""

    def take_away(self, tensor: int) -> None:
        tier, size = self.copies.pop(tensor, ("host", 0.0))
        self.held[tier] -= size
