"""Seconds of one kernel on a device, from its shape: matrix products by tiles and waves, the rest by
bandwidth.

A product runs as tiles of its result, one for each multiprocessor at a time, so the last wave is paid in
full; each tile has a fixed cost, counted as ``fill`` further terms of its inner loop; small tiles reuse less
of what they read. The library tries several tiles and keeps the fastest, so do we. Source of the mechanism:
NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave quantization). The figures of a device
stand in its sheet and say on which published measurements they were fitted.
"""

from __future__ import annotations

import functools
import math

from experiments.hardware.parts import Device, KernelRates

#: Rows and columns of a tile, and the share of the best rate that its reuse of operands allows.
TILES = ((256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 64, 0.6))


@functools.lru_cache(maxsize=65536)
def product_seconds(
    device: Device, m: float, n: float, k: float, count: float, dtype: str, size: int
) -> float:
    """``count`` products of (m x k) by (k x n) of ``size``-byte elements in one launch."""
    traffic = count * (m * k + k * n + m * n) * size
    return device.kernels.launch + max(tile_seconds(device, m, n, k, count, dtype), _move(device, traffic))


def tile_seconds(device: Device, m: float, n: float, k: float, count: float, dtype: str) -> float:
    """The arithmetic of ``count`` products of (m x k) by (k x n), by the fastest tile, whatever they read."""
    return min(_tiled_seconds(device, device.kernels, m, n, k, count, dtype, tile) for tile in TILES)


def _tiled_seconds(
    device: Device,
    rates: KernelRates,
    m: float,
    n: float,
    k: float,
    count: float,
    dtype: str,
    tile: tuple[int, int, float],
) -> float:
    rows, columns, reuse = tile
    tiles = math.ceil(m / rows) * math.ceil(n / columns) * count
    waves = math.ceil(tiles / rates.multiprocessors)
    rate = device.peak(dtype) * rates.product_efficiency * reuse / rates.multiprocessors
    return waves * 2.0 * rows * columns * (k + rates.fill) / rate


def attention_seconds(device: Device, flops: float, dtype: str) -> float:
    """A fused attention kernel of so many FLOPs."""
    return device.kernels.launch + flops / (device.peak(dtype) * device.kernels.attention_efficiency)


def stream_seconds(device: Device, traffic: float, launches: int = 1) -> float:
    """Element-wise kernels that together read and write ``traffic`` bytes of device memory."""
    return launches * device.kernels.launch + _move(device, traffic)


def _move(device: Device, traffic: float) -> float:
    return traffic / (device.memory_bandwidth * device.kernels.stream_efficiency)
