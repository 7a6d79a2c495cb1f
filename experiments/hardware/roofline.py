"""Roofline: an op takes as long as its arithmetic or its memory traffic, whichever is longer.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52(4),
2009. The rates are the device's peaks times its efficiencies (1.0 where none is assumed: then times are lower
bounds). FLOPs and bytes are those of the whole op; seconds come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from experiments.hardware.parts import Device

Floats = npt.NDArray[np.float64]


def compute_rate(device: Device, dtype: str) -> float:
    """FLOP/s that an op on ``dtype`` reaches at best."""
    return device.peak(dtype) * device.compute_efficiency


def memory_rate(device: Device) -> float:
    """Bytes/s that an op reaches at best against device memory."""
    return device.memory_bandwidth * device.memory_efficiency


def compute_time(device: Device, flops: float, dtype: str) -> float:
    """Seconds of arithmetic. An op without FLOPs needs no rate, so its dtype may be one without a peak."""
    return flops / compute_rate(device, dtype) if flops else 0.0


def memory_time(device: Device, bytes: float) -> float:
    """Seconds to move ``bytes`` (read plus written) between device memory and the cores."""
    return bytes / memory_rate(device)


def op_time(device: Device, flops: float, bytes: float, dtype: str) -> float:
    """Seconds of one op: max(flops / FLOP rate, bytes / byte rate)."""
    return max(compute_time(device, flops, dtype), memory_time(device, bytes))


def op_times(
    device: Device, flops: npt.ArrayLike, bytes: npt.ArrayLike, dtype: str | Sequence[str]
) -> Floats:
    """``op_time`` of many ops at once; ``dtype`` is one name for all or one per op. Shapes: (ops,) each."""
    work = np.asarray(flops, dtype=np.float64)
    traffic = np.asarray(bytes, dtype=np.float64)
    return np.maximum(work / _rates(device, work, dtype), traffic / memory_rate(device))


def _rates(device: Device, flops: Floats, dtype: str | Sequence[str]) -> Floats:
    """FLOP/s of each op; infinite for an op without FLOPs, whose dtype is not looked up."""
    names = np.broadcast_to(np.asarray(dtype, dtype=object), flops.shape)
    rates = np.full(flops.shape, np.inf)
    for name in sorted(set(names[flops != 0])):
        rates[(names == name) & (flops != 0)] = compute_rate(device, name)
    return rates


def bound(device: Device, flops: float, bytes: float, dtype: str) -> Literal["compute", "memory"]:
    """Which of the two sets the op's time; a tie counts as compute (the op reaches the full FLOP rate)."""
    return "compute" if compute_time(device, flops, dtype) >= memory_time(device, bytes) else "memory"


def intensity(flops: float, bytes: float) -> float:
    """Arithmetic intensity in FLOP per byte; infinite for work that moves nothing."""
    return flops / bytes if bytes else float("inf")


def ridge_point(device: Device, dtype: str) -> float:
    """The intensity (FLOP/byte) from which an op on ``dtype`` is bound by compute."""
    return compute_rate(device, dtype) / memory_rate(device)


def attainable(device: Device, intensity: npt.ArrayLike, dtype: str) -> Floats:
    """The roof of the plot: FLOP/s reachable at each intensity."""
    sloped = np.asarray(intensity, dtype=np.float64) * memory_rate(device)
    return np.minimum(sloped, compute_rate(device, dtype))
