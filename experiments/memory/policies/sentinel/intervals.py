"""The step cut into intervals of layers, and which tensors each of them uses (Sentinel's view of a step)."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.memory.interface.activations import layers
from experiments.memory.planning.swaps import Gap, TensorSwap, earliest_return, gaps_of
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats, Step


def layer_starts(step: Step) -> list[int]:
    """Return the ops at which a layer begins.

    At forward ops that are no views, at their stretches of backward, at ops of the optimizer.
    """
    net = layers(step)
    starts = {layer.op for layer in net} | {layer.backward_start for layer in net}
    starts |= {
        op for op in range(len(step.ops)) if step.phase_of(op) == "optimizer" and not step.ops.view[op]
    }
    return sorted({0} | (starts - {len(step.ops)}))


@dataclass(frozen=True)
class IntervalTotals:
    """By interval: bytes of long-lived tensors used, bytes that must be fetched for it, and its seconds."""

    used: Ints
    fetched: Ints
    seconds: Floats


class Intervals:
    """Long-lived tensors of a step and who uses them when.

    These are used in more than one layer, or persistent.

    ``reserved`` is the peak of all other bytes.
    """

    def __init__(self, step: Step, starts: Sequence[int], least_bytes: int) -> None:
        self.step, self.starts, self.layers = step, list(starts), len(starts)
        self.least_bytes = least_bytes
        self._layer = np.searchsorted(np.array(starts), np.arange(len(step.ops)), side="right") - 1
        self.tensors, self._uses = self._long_lived(self._layer)
        self.reserved = int(self._other_bytes(set(self.tensors)).max(initial=0))
        self._sizes = step.tensors.bytes[np.array([t for t, _ in self._uses], np.int64)]
        self._owners = np.array([t for t, _ in self._uses], np.int64)
        self._layers = np.array([used for _, used in self._uses], np.int64)
        self._clock = np.concatenate(([0.0], np.cumsum(step.ops.seconds)))

    def _long_lived(self, layer: Ints) -> tuple[list[int], list[tuple[int, int]]]:
        """Their ids, and (tensor, layer) for each layer that uses one."""
        tensors, uses = [], []
        layers = layer.tolist()
        for tensor, row in enumerate(self.step.uses.lists()):
            used = sorted({layers[op] for op in row})
            if self.step.tensors.bytes[tensor] >= self.least_bytes and len(used) > (
                not self.step.persistent[tensor]
            ):
                tensors.append(tensor)
                uses += [(tensor, at) for at in used]
        return tensors, uses

    def _other_bytes(self, long_lived: set[int]) -> Ints:
        load = self.step.live_bytes.copy()
        for tensor in long_lived:
            load[slice(*self.span(tensor))] -= self.step.tensors.bytes[tensor]
        return load

    def span(self, tensor: int) -> tuple[int, int]:
        """Ops ``[first, end)`` for which a tensor exists."""
        if self.step.persistent[tensor]:
            return 0, len(self.step.ops)
        return int(self.step.first_use[tensor]), int(self.step.last_use[tensor]) + 1

    def bounds(self, size: int) -> list[int]:
        """First ops of intervals of ``size`` layers, and the end of the step."""
        return [*self.starts[::size], len(self.step.ops)]

    def cut(self, size: int) -> IntervalTotals:
        count = -(-self.layers // size)
        interval = self._layers // size
        first = np.ones(len(interval), np.bool_)
        first[1:] = (interval[1:] != interval[:-1]) | (self._owners[1:] != self._owners[:-1])
        owners, used, sizes = self._owners[first], interval[first], self._sizes[first]
        bounds = np.array(self.bounds(size))
        return IntervalTotals(
            used=np.bincount(used, sizes, count).astype(np.int64),
            fetched=np.bincount(used, np.where(self._away(owners, used, count), sizes, 0), count).astype(
                np.int64
            ),
            seconds=np.diff(self._clock[bounds]),
        )

    def _away(self, owners: Ints, used: Ints, count: int) -> npt.NDArray[np.bool_]:
        """Whether the owner was away before this use: it was not used in the two intervals before."""
        last = np.append(owners[1:] != owners[:-1], True)
        begins = np.append(True, last[:-1])
        previous = np.roll(used, 1)
        final = used[last][np.cumsum(begins) - 1]
        previous = np.where(begins, final - count, previous)
        born = begins & ~self.step.persistent[owners]
        return (used - previous >= 3) & ~born

    def swaps(self, size: int, tier: str) -> list[TensorSwap]:
        """Return a swap for each time that a tensor is not used in an interval and the next.

        It goes out when that begins and is back in time.
        """
        bounds, found = self.bounds(size), []
        for gap, start, end in self._gaps(size, len(bounds) - 1):
            leave, back = bounds[start + 1], bounds[end - 1]
            if gap.wraps and end == 0:  # fetched in the last interval already: the step begins with it
                gap, back = Gap(gap.tensor, gap.bytes, gap.after, len(self.step.ops)), bounds[-2]
            found.append(TensorSwap(gap, back, tier, leave))
        return found

    def all_swaps(self, tier: str) -> list[TensorSwap]:
        """Every gap, from the end of one use to the layer before that of the next."""
        found = []
        for gap in gaps_of(self.step, self.least_bytes, wrapping=True):
            layer = max(0, bisect_right(self.starts, gap.before) - 2)
            found.append(
                TensorSwap(gap, min(gap.before, max(earliest_return(gap), self.starts[layer])), tier)
            )
        return found

    def _gaps(self, size: int, count: int) -> Iterator[tuple[Gap, int, int]]:
        """Gaps of at least two whole intervals, with the intervals at their ends."""
        for tensor in self.tensors:
            uses = self.step.uses[tensor].tolist()
            at = (self._layer[uses] // size).tolist()
            bytes_ = int(self.step.tensors.bytes[tensor])
            for (a, start), (b, end) in itertools.pairwise(zip(uses, at, strict=True)):
                if end - start >= 3:
                    yield Gap(tensor, bytes_, a, b), start, end
            if self.step.persistent[tensor] and at[0] + count - at[-1] >= 3:
                yield Gap(tensor, bytes_, uses[-1], uses[0], wraps=True), at[-1], at[0]
