"""The bytes on each tier off the device."""

from __future__ import annotations

from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.plan import TIERS


class Tiers:
    """``stored`` bytes by tier and the most there were; whole pages where a tier has them."""

    def __init__(self, machine: MemoryMachine) -> None:
        self.room = {tier: machine.tier_bytes(tier) for tier in TIERS}
        self.page = {tier: machine.tier_page(tier) for tier in TIERS}
        self.stored = dict.fromkeys(TIERS, 0.0)
        self.peaks = dict.fromkeys(TIERS, 0.0)

    def pages(self, size: float, tier: str) -> float:
        """``size`` bytes as they are stored on ``tier``."""
        page = self.page[tier]
        return size if page == 1 else -(-size // page) * page

    def store(self, size: float, tier: str) -> float:
        """Take ``size`` bytes on ``tier``; the bytes that are missing there (0: it fits)."""
        self.stored[tier] += self.pages(size, tier)
        if self.stored[tier] > self.peaks[tier]:
            self.peaks[tier] = self.stored[tier]
        return max(0.0, self.stored[tier] - self.room[tier])

    def restart(self) -> None:
        """Look for the most bytes anew."""
        self.peaks = dict(self.stored)

    def unstore(self, size: float, tier: str) -> None:
        self.stored[tier] -= self.pages(size, tier)
