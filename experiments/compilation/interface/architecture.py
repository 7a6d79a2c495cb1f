"""What planners of kernels see of a device.

Every rate, capacity and granularity is read from its sheets here.

Two kinds of kernels reach different shares of a device's peaks. *Constructed* kernels (Roller, Welder) are
plain code for blocks of threads: their shares stand in the sheet of the device's units, with all that limits
such a block. *Tuned* kernels (Rammer's operators) are what a library or a tuner gives: the device's
efficiencies and its kernels' sheet say what they reach, and a ``UnitShare`` is what one of several equal
units has of that.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.hardware.parts import ComputeUnits, Device


@dataclass(frozen=True)
class UnitShare:
    """One of ``count`` equal units.

    FLOP/s, bytes/s, and seconds that a block takes however little it does; ``wait`` is what waiting for
    another unit takes at least.
    """

    count: int
    flops: float
    bytes: float
    latency: float
    wait: float = 0.0

    def seconds(self, flops: float, bytes: float) -> float:
        """Return the time of a block that does so much."""
        return self.latency + max(flops / self.flops, bytes / self.bytes)


@dataclass(frozen=True)
class Architecture:
    """A device with what its kernels reach and what its units hold."""

    device: Device

    @functools.cached_property
    def units(self) -> ComputeUnits:
        """The units that run blocks of threads.

        ``BadInput`` where the device's sheet does not say what they are.
        """
        if self.device.units is None:
            raise BadInput(
                f"{self.device.name} has no sheet of units",
                "spec.hardware",
                "a GPU whose sheet names its units (v100, a100, ...)",
            )
        return self.device.units

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def launch(self) -> float:
        """Seconds from one kernel to the next."""
        return self.device.kernels.launch

    def flops(self, dtype: str) -> float:
        """FLOP/s that constructed kernels reach in ``dtype``."""
        return self.device.peak(dtype) * self.units.compute_share

    @property
    def dram_bandwidth(self) -> float:
        """Bytes/s with DRAM that constructed kernels reach."""
        return self.device.memory_bandwidth * self.units.memory_share

    @property
    def shared_bandwidth(self) -> float:
        """Bytes/s with shared memory over all units."""
        return self.units.shared_bandwidth

    def tuned_flops(self, dtype: str) -> float:
        """FLOP/s that tuned kernels reach in ``dtype``."""
        device = self.device
        return device.peak(dtype) * device.compute_efficiency * device.kernels.product_efficiency

    @property
    def tuned_bandwidth(self) -> float:
        """Bytes/s with DRAM that tuned kernels reach."""
        device = self.device
        return device.memory_bandwidth * device.memory_efficiency * device.kernels.stream_efficiency

    def share(self, occupancy: int, latency: float, dtype: str) -> UnitShare:
        """Return the rates of tuned kernels divided among ``occupancy`` blocks on each multiprocessor."""
        count = self.device.kernels.multiprocessors * occupancy
        return UnitShare(count, self.tuned_flops(dtype) / count, self.tuned_bandwidth / count, latency)
