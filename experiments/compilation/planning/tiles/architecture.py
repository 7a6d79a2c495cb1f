"""What a tile constructor sees of a device: rates, capacities and granularities, from the device's spec sheets."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.hardware.parts import ComputeUnits, Device


@dataclass(frozen=True)
class Architecture:
    """A device with the units that run its blocks."""

    device: Device
    units: ComputeUnits

    def flops(self, dtype: str) -> float:
        """FLOP/s that plain kernels reach in ``dtype``."""
        return self.device.peak(dtype) * self.units.compute_share

    @property
    def dram_bandwidth(self) -> float:
        """Bytes/s that plain kernels reach."""
        return self.device.memory_bandwidth * self.units.memory_share

    @property
    def shared_bandwidth(self) -> float:
        return self.units.shared_bandwidth


def architecture(device: Device) -> Architecture:
    """``BadInput`` where the device's sheet does not say what its units are."""
    if device.units is None:
        raise BadInput(
            f"{device.name} has no sheet of units",
            "spec.hardware",
            "a GPU whose sheet names its units (v100, a100, ...)",
        )
    return Architecture(device, device.units)
