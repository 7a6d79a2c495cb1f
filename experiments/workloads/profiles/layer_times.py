"""Measured times of a model's layers while it serves: by tokens, by sequences, and of attention by what it
reads. All for one layer and one call, on each of ``ranks`` devices.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: A point of an axis and its weight in a blend.
Weighted = tuple[int, float]


@dataclass(frozen=True)
class Curve:
    """Seconds at ascending ``points``: linear between them, level below the first, on from the last two.

    A line that falls beyond the last point ends at nothing.
    """

    points: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, place: float | Floats) -> float | Floats:
        if isinstance(place, float | int):
            value = interpolate(self.seconds, blend(self.points, place))
            return value if place <= self.points[-1] or len(self.points) == 1 else max(0.0, value)
        found = np.interp(place, self.points, self.seconds)
        beyond = np.asarray(place) > self.points[-1]
        if len(self.points) > 1 and beyond.any():
            slope = (self.seconds[-1] - self.seconds[-2]) / (self.points[-1] - self.points[-2])
            further = np.maximum(self.seconds[-1] + slope * (place - self.points[-1]), 0.0)
            found = np.where(beyond, further, found)
        return np.asarray(found, np.float64)


def blend(points: Sequence[float], place: float) -> tuple[Weighted, ...]:
    """The points that a linear blend takes, and how much of each; it goes on beyond the last."""
    last = len(points) - 1
    right = bisect_left(points, place)
    if right > last:
        if last == 0:
            return ((0, 1.0),)
        right = last
    elif points[right] == place or right == 0:
        return ((right, 1.0),)
    share = (place - points[right - 1]) / (points[right] - points[right - 1])
    return ((right - 1, 1 - share), (right, share))


def interpolate(values: Sequence[float], parts: tuple[Weighted, ...]) -> float:
    """The weighted sum of one value or two."""
    index, weight = parts[0]
    found = weight * values[index]
    if len(parts) > 1:
        index, weight = parts[1]
        found += weight * values[index]
    return found


@dataclass(frozen=True)
class Steady:
    """Attention of one number of prompt tokens and of decodes, by the context of each.

    A curve over the decodes' context for each context of the prompt's.
    """

    contexts: tuple[float, ...]
    curves: tuple[Curve, ...]

    def at(self, prefill_context: float, decode_context: float | Floats) -> float | Floats:
        found: float | Floats = 0.0
        for index, weight in blend(self.contexts, prefill_context):
            found = found + weight * self.curves[index].at(decode_context)
        return found


#: Groups around a pair that was asked for, with their weights.
Corners = tuple[tuple[float, Steady], ...]


@dataclass(frozen=True)
class AttentionTimes:
    """By prompt tokens in the step and number of decodes, each with their contexts (one joint lookup).

    ``is_apart``: every prompt's runs for itself, so that several take what each of them does.
    """

    groups: Mapping[tuple[int, int], Steady]
    is_apart: bool = False
    _corners: dict[tuple[int, int], tuple[tuple[float, Steady], ...]] = field(
        default_factory=dict, repr=False
    )

    @cached_property
    def chunks(self) -> tuple[float, ...]:
        return tuple(sorted({float(chunk) for chunk, _ in self.groups}))

    @cached_property
    def counts(self) -> tuple[float, ...]:
        return tuple(sorted({float(count) for _, count in self.groups}))

    @cached_property
    def most_beside(self) -> int:
        """The largest number of decodes that was measured next to a prompt."""
        return max((count for chunk, count in self.groups if chunk), default=0)

    @cached_property
    def longest(self) -> tuple[float, float]:
        """The largest context of a prompt and of decodes that was measured anywhere."""
        prompts = max(group.contexts[-1] for group in self.groups.values())
        decodes = max(curve.points[-1] for group in self.groups.values() for curve in group.curves)
        return prompts, decodes

    def at(
        self, chunk: int, prefill_context: float, decodes: int, decode_context: float | Floats
    ) -> float | Floats:
        corners = self._corners.get((chunk, decodes))
        if corners is None:
            corners = self._corners[chunk, decodes] = tuple(self._find_corners(chunk, decodes))
        found: float | Floats = 0.0
        for weight, group in corners:
            found = found + weight * group.at(prefill_context, decode_context)
        return max(0.0, found) if isinstance(found, float | int) else np.maximum(found, 0.0)

    def _find_corners(self, chunk: int, decodes: int) -> list[tuple[float, Steady]]:
        """The measured pairs around the one asked for; a missing one gives way to the nearest there is."""
        return [
            (left * right, self._nearest(self.chunks[row], self.counts[column]))
            for row, left in blend(self.chunks, chunk)
            for column, right in blend(self.counts, decodes)
        ]

    def _nearest(self, chunk: float, count: float) -> Steady:
        wanted = (int(chunk), int(count))
        if wanted not in self.groups:
            wanted = min(self.groups, key=lambda pair: (abs(pair[0] - chunk) + abs(pair[1] - count), pair))
        return self.groups[wanted]


@dataclass(frozen=True)
class ApartTimes:
    """Attention of prompts and of decodes, each timed without the other: what they take adds up.

    ``prompts`` has groups without decodes, ``decodes`` such without a prompt.
    """

    is_apart: ClassVar[bool] = False

    prompts: AttentionTimes
    decodes: AttentionTimes

    @property
    def chunks(self) -> tuple[float, ...]:
        return self.prompts.chunks

    @property
    def counts(self) -> tuple[float, ...]:
        return self.decodes.counts

    @property
    def most_beside(self) -> int:
        """The largest number of decodes that was measured; a prompt next to them changes nothing."""
        return int(self.counts[-1])

    @cached_property
    def longest(self) -> tuple[float, float]:
        """The largest context of a prompt and of decodes that was measured anywhere."""
        return self.prompts.longest[0], self.decodes.longest[1]

    def at(
        self, chunk: int, prefill_context: float, decodes: int, decode_context: float | Floats
    ) -> float | Floats:
        found: float | Floats = self.prompts.at(chunk, prefill_context, 0, 0.0) if chunk else 0.0
        return found + self.decodes.at(0, 0.0, decodes, decode_context) if decodes else found


@dataclass(frozen=True)
class UnequalContexts:
    """How far a step with unequal contexts goes from the mean one's time to the longest one's.

    ``share`` by bucket, ``usual`` off the buckets. ``edges`` (each the largest of its bucket) of the number
    of decodes, of where the mean is between the least and the longest, of the longest context and of the
    prompt's context.
    """

    share: Mapping[tuple[int, int, int, int, int], float]
    usual: float
    edges: tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]

    def of(self, chunk: int, decodes: int, rate: float, longest: float, prefill_context: float) -> float:
        places = zip(self.edges, (decodes, rate, longest, prefill_context), strict=True)
        count, skew, largest, prompt = (bisect_left(edges, value) for edges, value in places)
        return self.share.get((chunk, count, skew, largest, prompt), self.usual)


@dataclass(frozen=True)
class LayerTimes:
    """``by_tokens`` of each layer and of what runs once a step, ``by_sequences`` of the head and sampling.

    ``wake``: how much longer a step takes after so many seconds in which nothing was computed, since others
    have had the caches.
    """

    speeds: ClassVar[str] = "layers"

    name: str
    ranks: int
    by_tokens: Mapping[str, Curve]
    by_sequences: Mapping[str, Curve]
    attention: AttentionTimes | ApartTimes
    unequal: UnequalContexts | None = None
    wake: Curve | None = None
