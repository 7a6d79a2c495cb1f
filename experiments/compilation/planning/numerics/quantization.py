"""Uniform integer quantization of weights (Jacob et al., CVPR 2018, section 2.1) in numpy, in float64.

With codes in [lowest, highest] and one scale s and zero point z per block of weights:
- symmetric: ``s = max|x| / highest``, ``z = 0``, codes in [-highest, highest];
- affine: ``s = (max(x, 0) - min(x, 0)) / (highest - lowest)``, ``z = lowest - round(min(x, 0) / s)``.
``q = clamp(round(x / s) + z)`` with ties to even, and ``s (q - z)`` stands for x: never more than s / 2 away.
A block that holds only zeros has s = 1.

What is left open: torch's own kernels add z before they round, so on ties codes may differ from these by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput

Floats = npt.NDArray[np.float64]
GRANULARITIES = ("tensor", "channel", "group")
#: Bytes of one scale and of one zero point.
SCALE_BYTES = {"float32": 4, "float16": 2}
ZERO_BYTES = 1


@dataclass(frozen=True)
class Scheme:
    """How a weight becomes integers of ``bits`` (2 to 8).

    A scale is shared by the whole tensor, by an output channel, or by ``group`` weights in a row of one
    channel. Codes lie two or four to a byte where 4 or 2 bits hold them, otherwise one to a byte; a row
    starts a new byte.
    """

    bits: int = 8
    granularity: str = "channel"
    group: int = 128
    symmetric: bool = True
    scale: str = "float32"

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise BadInput(f"{self.bits} bits", "scheme.bits", "2 to 8")
        if self.granularity not in GRANULARITIES:
            raise BadInput(f"{self.granularity!r}", "scheme.granularity", f"one of {GRANULARITIES}")

    @property
    def highest(self) -> int:
        return (1 << self.bits - (1 if self.symmetric else 0)) - 1

    @property
    def lowest(self) -> int:
        return -self.highest if self.symmetric else 0

    @property
    def smallest_scale(self) -> float:
        """The least number of full precision: a subnormal scale has few digits, or none where flushed."""
        return float(np.finfo(self.scale).tiny)

    @property
    def stored_bits(self) -> int:
        return next(size for size in (2, 4, 8) if size >= self.bits)

    def blocking(self, channels: int, width: int) -> Blocking:
        """Return how ``channels`` rows of ``width`` weights divide into blocks that share a scale."""
        if self.granularity == "tensor":
            return Blocking(1, 1, channels * width, 0)
        size = width if self.granularity == "channel" else min(self.group, width)
        blocks = math.ceil(width / size)
        return Blocking(channels, blocks, size, blocks * size - width)

    def bytes(self, channels: int, width: int) -> int:
        """What codes, scales and zero points of such a matrix take, padding included."""
        blocks = self.blocking(channels, width)
        codes = channels * math.ceil((width + blocks.padding) * self.stored_bits / 8)
        beside = SCALE_BYTES[self.scale] + (0 if self.symmetric else ZERO_BYTES)
        return codes + blocks.rows * blocks.per_row * beside


@dataclass(frozen=True)
class Blocking:
    """``rows`` times ``per_row`` blocks of ``size`` weights.

    ``padding`` zeros fill the last block of each row.
    """

    rows: int
    per_row: int
    size: int
    padding: int


@dataclass(frozen=True)
class Quantized:
    """``codes`` [rows, per_row, size], ``scales`` and ``zeros`` [rows, per_row, 1] of a tensor of ``shape``.

    ``axis`` is the tensor's axis of output channels (0, but 1 for transposed convolutions).
    """

    scheme: Scheme
    codes: npt.NDArray[np.int64]
    scales: Floats
    zeros: npt.NDArray[np.int64]
    shape: tuple[int, ...]
    axis: int

    @property
    def values(self) -> Floats:
        """The tensor that the codes stand for."""
        return _unblocked(self.scales * (self.codes - self.zeros), self.shape, self.axis)

    @property
    def steps(self) -> Floats:
        """The scale that holds for each element; ``values`` is at most half of it from the original."""
        return _unblocked(np.broadcast_to(self.scales, self.codes.shape), self.shape, self.axis)


def quantize(values: npt.ArrayLike, scheme: Scheme, axis: int = 0) -> Quantized:
    """Return ``values`` (any shape, finite) in the scheme's codes."""
    tensor = np.asarray(values, np.float64)
    if not np.isfinite(tensor).all():
        raise BadInput("holds NaN or infinity", "weight", "finite numbers")
    blocks = _blocked(tensor, scheme, axis)
    scales = _scales(blocks, scheme)
    zeros = np.zeros_like(scales, np.int64)
    if not scheme.symmetric:
        below = np.minimum(blocks.min(-1, keepdims=True), 0)
        zeros = np.clip(scheme.lowest - np.rint(below / scales), scheme.lowest, scheme.highest).astype(
            np.int64
        )
    codes = np.clip(np.rint(blocks / scales) + zeros, scheme.lowest, scheme.highest).astype(np.int64)
    return Quantized(scheme, codes, scales, zeros, tensor.shape, axis)


def _scales(blocks: Floats, scheme: Scheme) -> Floats:
    if scheme.symmetric:
        spread = np.abs(blocks).max(-1, keepdims=True)
    else:
        spread = np.maximum(blocks.max(-1, keepdims=True), 0) - np.minimum(blocks.min(-1, keepdims=True), 0)
    scales = spread / (scheme.highest - (0 if scheme.symmetric else scheme.lowest))
    scales = scales.astype(np.float32).astype(scheme.scale)  # by way of float32, as torch rounds to float16
    if not np.isfinite(scales).all():
        raise BadInput(
            f"scale {spread.max():.3g} over the steps", "weight", f"scales that {scheme.scale} holds"
        )
    return np.where(spread > 0, np.maximum(scales, scheme.smallest_scale), 1).astype(np.float64)


def _blocked(tensor: Floats, scheme: Scheme, axis: int) -> Floats:
    matrix = np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1)
    blocks = scheme.blocking(*matrix.shape)
    if scheme.granularity != "tensor":
        matrix = np.pad(matrix, ((0, 0), (0, blocks.padding)))
    return matrix.reshape(blocks.rows, blocks.per_row, blocks.size)


def _unblocked(blocks: Floats, shape: tuple[int, ...], axis: int) -> Floats:
    channels = shape[axis]
    moved = (channels, *(size for number, size in enumerate(shape) if number != axis))
    width = math.prod(moved[1:])
    return np.moveaxis(blocks.reshape(channels, -1)[:, :width].reshape(moved), 0, axis)


def sqnr(exact: npt.ArrayLike, approximate: npt.ArrayLike) -> float:
    """Signal to quantization noise in dB, ``10 log10(sum x^2 / sum (x - x^)^2)``; infinite when equal."""
    truth, ours = np.asarray(exact, np.float64), np.asarray(approximate, np.float64)
    return decibels(float(np.square(truth).sum()), float(np.square(truth - ours).sum()))


def decibels(signal: float, noise: float) -> float:
    """Return the ratio of two powers."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf
