"""Streams of one process: what is asked and what trains run side by side, and no kernel is stopped.

A kernel takes its time alone times the sum of the demanded shares, where that is above 1 (``streams``): half
of the device for each of two that would fill it. Weights that do not fit together are copied on the host's
link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.serving.interface.sharing import SharedDevice, SharedModel, Sharer, SharingPolicy
from experiments.serving.planning.streams import Streams


@dataclass(frozen=True)
class MultiStream(SharingPolicy):
    """Shares the device between streams of one process by what they demand, without preemption."""

    name: ClassVar[str] = "multi_stream"

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        return Streams(device, models, device.bandwidth)

    def starts_resident(self, model: SharedModel) -> bool:
        return not model.is_real_time
