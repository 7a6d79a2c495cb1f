"""Quantized weights and their originals: the noise of each, and how much a scheme may make."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.compilation.planning.numerics.bounds import ROUNDOFF
from experiments.compilation.planning.numerics.quantization import Scheme, decibels, quantize, sqnr

#: JSON knows no infinity: exact is said as 300 dB.
EXACT = 300.0
#: How far below the noise of our own rounding another's may lie: scales of 127.5 steps instead of 127, zero
#: points that are no whole numbers. A wrong scale or axis is tens of decibels off.
MARGIN = 3.0


@dataclass(frozen=True)
class KeptWeight:
    """``values`` stand in the original's place and take ``bytes``; ``axis`` is that of output channels.

    ``expected`` is the SQNR in dB that rounding to nearest keeps, where it is to be checked. ``tied``: all
    that shares the original has these values too.
    """

    path: str
    original: Tensor
    values: Tensor
    bytes: int
    axis: int = 0
    padding: int = 0
    expected: float | None = None
    tied: bool = True

    @cached_property
    def channels(self) -> list[tuple[float, float]]:
        """Of each output channel the power of signal and noise: sums of squares."""
        truth, ours = (value.detach().double() for value in (self.original, self.values))
        signal, noise = (
            values.movedim(self.axis, 0).flatten(1).square().sum(1).tolist()
            for values in (truth, truth - ours.to(truth.device))
        )
        return list(zip(signal, noise, strict=True))

    @property
    def powers(self) -> tuple[float, float]:
        """Of the whole weight."""
        return sum(signal for signal, _ in self.channels), sum(noise for _, noise in self.channels)

    @property
    def complaint(self) -> str:
        """What is wrong with the values; empty when nothing is."""
        found = decibels(*self.powers)
        if self.expected is None or found >= self.expected - MARGIN:
            return ""
        return f"{self.path} is kept at {found:.1f} dB, rounding to nearest keeps {self.expected:.1f} dB"


def scheme_sqnr(weight: Tensor, scheme: Scheme) -> float:
    """What our own rounding to nearest keeps of the weight."""
    truth = weight.detach().double().cpu().numpy()
    return sqnr(truth, quantize(truth, scheme).values)


def float8_sqnr() -> float:
    """What e4m3 keeps at least of numbers in its normal range: none is more than the roundoff off."""
    return float(-20 * np.log10(ROUNDOFF["float8_e4m3fn"]))


@torch.no_grad()
def with_kept(module: nn.Module, weights: Sequence[KeptWeight]) -> nn.Module:
    """Return a copy of the module with these values in the place of its weights."""
    made = copy.deepcopy(module)
    for weight in weights:
        owner, _, name = weight.path.rpartition(".")
        layer = made.get_submodule(owner)
        if not weight.tied:
            setattr(layer, name, nn.Parameter(weight.original.detach().clone()))
        getattr(layer, name).copy_(weight.values)
    return made


def weight_sqnr(weights: Sequence[KeptWeight]) -> float:
    """Of all weights together."""
    signal, noise = (sum(weight.powers[number] for weight in weights) for number in (0, 1))
    return finite(decibels(signal, noise))


def channel_sqnr(weights: Sequence[KeptWeight]) -> float:
    """Return the median over output channels: a few large ones do not hide that the others are lost."""
    return statistics.median(finite(decibels(*each)) for weight in weights for each in weight.channels)


def rows(weights: Sequence[KeptWeight]) -> list[dict[str, Any]]:
    """One row of a run's report for each weight."""
    return [
        {
            "weight": weight.path,
            "shape": list(weight.original.shape),
            "sqnr": finite(decibels(*weight.powers)),
            "channel_sqnr": channel_sqnr([weight]),
            "bytes_before": weight.original.numel() * weight.original.element_size(),
            "bytes": weight.bytes,
            "padding": weight.padding,
        }
        for weight in weights
    ]


def finite(value: float) -> float:
    return min(max(value, -EXACT), EXACT)
