"""Ways to divide a layer's output among devices, and which box of it each device then has or reads.

Parts are numbered row-major over (sample, height, width, channel), so that the parts of one sample's channels are
neighbours; part ``p`` is on device ``p``, devices beyond the parts are idle. A box is one half-open interval on each axis;
few intervals are distinct, so they are listed once for each axis (``Division``), the first one being empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.parallel.planning.layer_dims import LayerDims, Window
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Names of the dimensions in the order of a configuration.
AXES = ("sample", "channel", "height", "width")
SAMPLE, CHANNEL, HEIGHT, WIDTH = range(4)


class Configuration(NamedTuple):
    """Degrees of parallelism over each dimension of a layer's output."""

    sample: int = 1
    channel: int = 1
    height: int = 1
    width: int = 1

    @property
    def parts(self) -> int:
        return self.sample * self.channel * self.height * self.width

    def weight_parts(self, dims: LayerDims) -> int:
        """Parts of the layer's parameters; the other dimensions replicate them."""
        return self.channel if dims.weights else 1

    def __str__(self) -> str:
        named = [f"{axis} {degree}" for axis, degree in zip(AXES, self, strict=True) if degree > 1]
        return ", ".join(named) or "whole"


def configurations(dims: LayerDims, devices: int, axes: Sequence[str] = AXES) -> tuple[Configuration, ...]:
    """All that divide their dimensions evenly and whose parts divide ``devices``, fewer parts first."""
    choices = [
        [d for d in _divisors(devices) if d == 1 or (axis in axes and _divides(dims, number, d))]
        for number, axis in enumerate(AXES)
    ]
    found = (Configuration(*degrees) for degrees in itertools.product(*choices))
    return tuple(sorted((c for c in found if devices % c.parts == 0), key=lambda c: (c.parts, c)))


def _divisors(count: int) -> list[int]:
    return [degree for degree in range(1, count + 1) if count % degree == 0]


def _divides(dims: LayerDims, axis: int, degree: int) -> bool:
    """Rows and columns only where the window is known; samples that nobody counted divide by anything."""
    if axis != SAMPLE and (not dims.known or (axis != CHANNEL and dims.window is None)):
        return False
    return dims.extents[axis] % degree == 0


class Division:
    """The boxes of some configurations over ``devices``.

    ``index[c, d, a]`` is the interval of configuration ``c`` on device ``d`` along axis ``a``, counted in
    ``intervals``; 0 for an idle device.
    """

    def __init__(self, choices: Sequence[Configuration], devices: int) -> None:
        self._degrees = _divisors(devices)
        firsts = dict(zip(self._degrees, itertools.accumulate([1, *self._degrees]), strict=False))
        self.index: Ints = np.zeros((len(choices), devices, 4), np.int64)
        for row, choice in enumerate(choices):
            grid = np.indices((choice.sample, choice.height, choice.width, choice.channel)).reshape(4, -1).T
            first = np.array([firsts[degree] for degree in choice])
            self.index[row, : choice.parts] = grid[:, [0, 3, 1, 2]] + first

    def intervals(self, extent: float) -> Floats:
        """Every interval of an axis: an empty one, the whole, both halves, ... Shape: (intervals, 2)."""
        cuts = [np.linspace(0, extent, degree + 1) for degree in self._degrees]
        rows = [np.stack([cut[:-1], cut[1:]], axis=-1) for cut in cuts]
        return np.concatenate([np.zeros((1, 2)), *rows])


def read_intervals(reader: LayerDims, source: LayerDims, own: Sequence[Floats], offset: int) -> list[Floats]:
    """What must be read of ``source``'s output on each axis to make the intervals ``own`` of ``reader``'s.

    ``offset`` is the channel of the reader at which this source begins where inputs are joined.
    """
    window = reader.window if reader.known else None
    found = [
        own[SAMPLE],
        _channels(reader, source, own[CHANNEL], offset),
        _rows(window, own[HEIGHT], source.height, reader.height),
        _rows(window, own[WIDTH], source.width, reader.width),
    ]
    return [np.concatenate([np.zeros((1, 2)), axis[1:]]) for axis in found]


def _channels(reader: LayerDims, source: LayerDims, own: Floats, offset: int) -> Floats:
    if reader.mixes or not reader.known or not source.known:
        return np.broadcast_to(np.array([0.0, source.channels]), own.shape)
    if reader.joins:
        return np.clip(own - offset, 0, source.channels)
    return own * (source.channels / reader.channels)


def _rows(window: Window | None, own: Floats, length: int, out: int) -> Floats:
    """Rows (or columns) of ``length`` that rows ``own`` of ``out`` read through ``window``."""
    if window is None:
        return np.broadcast_to(np.array([0.0, length]), own.shape)
    begin = own[:, 0] * window.stride - window.padding
    end = (own[:, 1] - 1) * window.stride - window.padding + window.size
    begin, end = np.where(own[:, 0] <= 0, 0, begin), np.where(own[:, 1] >= out, length, end)
    return np.clip(np.stack([begin, end], axis=-1), 0, length)


def lengths(intervals: Floats) -> Floats:
    found: Floats = intervals[:, 1] - intervals[:, 0]
    return found


def common(first: Floats, second: Floats) -> Floats:
    """What each interval of ``first`` (rows) shares with each of ``second`` (columns)."""
    begin = np.maximum(first[:, None, 0], second[None, :, 0])
    end = np.minimum(first[:, None, 1], second[None, :, 1])
    found: Floats = np.clip(end - begin, 0, None)
    return found
