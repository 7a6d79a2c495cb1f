"""Speeds by device type: alone on devices of one node, alone on several nodes, and in pairs on the same
devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

#: A model as it is trained on so many devices.
Variant = tuple[str, int]


@dataclass(frozen=True)
class SpeedsOfType:
    """Steps per second on devices of one type; 0: it does not run there (its memory is too small).

    ``together`` has, for a variant and one that shares all its devices, the speeds of both.
    """

    alone: Mapping[Variant, float]
    together: Mapping[tuple[Variant, Variant], tuple[float, float]]


@dataclass(frozen=True)
class DeviceSpeeds:
    """What a table of measured speeds holds.

    ``compact`` by device type, on devices of one node; ``spread`` the same over several nodes, where it was
    measured.
    """

    speeds: ClassVar[str] = "oracle"

    name: str
    compact: Mapping[str, SpeedsOfType]
    spread: Mapping[str, SpeedsOfType]

    def kind_of(self, device: str) -> str | None:
        """The table's type of a device: ``v100`` is also that of ``v100-16g``; the longest that fits."""
        fits = [kind for kind in self.compact if device == kind or device.startswith(f"{kind}-")]
        return max(fits, key=len, default=None)

    @property
    def variants(self) -> frozenset[Variant]:
        """What was measured on any type."""
        return frozenset(variant for speeds in self.compact.values() for variant in speeds.alone)

    def reference(self, variant: Variant) -> tuple[str, float]:
        """The type on which a variant is fastest when it runs alone, and how fast that is.

        ``v100`` where the table has it, as Gavel's own durations are of that type.
        """
        speeds = {kind: of_type.alone.get(variant, 0.0) for kind, of_type in self.compact.items()}
        kind = "v100" if speeds.get("v100") else max(speeds, key=lambda kind: (speeds[kind], kind))
        return kind, speeds[kind]
