"""The dynamic program of Alpa over stages: which layers go to which submesh of a cluster.

Source: Zheng et al., "Alpa", OSDI'22, section 5: submesh shapes (5.1: a node's devices halved, or whole
nodes), the recursion F(s, k, d) for every bound t_max on a stage's time with pruning, T = sum of t_i + (B -
1) max t_i with the achieved maximum (as released), and operators clustered to layers of about equal work that
receive few bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.workloads.step import Floats

#: Bounds that differ by less (seconds) are tried as one, as released.
GAP = 1e-6


@dataclass(frozen=True)
class StageChoice:
    """Layers ``begin`` to ``end`` (exclusive) on submesh number ``submesh``."""

    begin: int
    end: int
    submesh: int


@dataclass(frozen=True)
class Stages:
    """The best stages, their predicted seconds, and what was looked at."""

    stages: tuple[StageChoice, ...]
    seconds: float
    bounds: int
    states: int


def submeshes(nodes: int, per_node: int) -> list[tuple[int, int]]:
    """Return the submeshes (1, 1), (1, 2), (1, 4) ... (1, M), then (2, M) ... (N, M)."""
    sizes = [1 << power for power in range(per_node.bit_length()) if (1 << power) < per_node]
    return [(1, size) for size in (*sizes, per_node)] + [(count, per_node) for count in range(2, nodes + 1)]


def cluster_operators(flops: Floats, crossing: Floats, most: int, slack: float = 0.5) -> list[int]:
    """Return the ends of at most ``most`` runs of operators that exchange few bytes.

    The largest bytes received over the borders are minimal; ties go to even work.

    ``crossing[i]`` are the bytes that a run that begins with i receives. A run has at most (1 + slack) times
    its share of the FLOPs; where single operators have more, as much as the largest.
    """
    count = len(flops)
    if count <= most:
        return list(range(1, count + 1))
    work = np.append(0.0, np.cumsum(flops))
    limit = max((1 + slack) * work[-1] / most, float(flops.max()))
    best: list[dict[int, tuple[float, float, int]]] = [{0: (0.0, 0.0, -1)}]
    for _ in range(most):
        grown: dict[int, tuple[float, float, int]] = {}
        for start, (bytes_so_far, uneven, _) in best[-1].items():
            for end in range(start + 1, count + 1):
                inside = float(work[end] - work[start])
                if inside > limit * (1 + 1e-12):
                    break
                score = max(bytes_so_far, float(crossing[start])), uneven + inside**2, start
                grown[end] = min(grown.get(end, (np.inf, np.inf, -1)), score)
        best.append(grown)
    made = max((n for n in range(most + 1) if count in best[n]), default=0)
    if not made:
        return cluster_operators(flops, crossing, most, 2 * slack + 1)
    ends = [count]
    for number in range(made, 1, -1):
        ends.append(best[number][ends[-1]][2])
    return ends[::-1]


def best_stages(
    seconds: Floats,
    fits: npt.NDArray[np.bool_],
    sizes: Sequence[int],
    devices: int,
    micro_batches: int,
) -> Stages | None:
    """Return the best stages for all layers on all ``devices``; ``None`` where nothing fits.

    ``seconds[i, j, m]``: of layers i to j (inclusive) on submesh m of ``sizes[m]`` devices, infinite where
    that cannot be. ``fits[s, i, j, m]``: whether it fits with s stages behind it.
    """
    bounds = np.unique(seconds[np.isfinite(seconds)])
    best: Stages | None = None
    tried, last, states = 0, -np.inf, 0
    for bound in bounds.tolist():
        if best is not None and micro_batches * bound >= best.seconds:
            break
        if bound - last < GAP and bound != bounds[-1]:
            continue
        last, tried = bound, tried + 1
        found = _Bounded(np.where(seconds <= bound, seconds, np.inf), fits, sizes, devices)
        states += found.states
        stages = found.stages()
        if stages is None:
            continue
        times = [float(seconds[s.begin, s.end - 1, s.submesh]) for s in stages]
        total = sum(times) + (micro_batches - 1) * max(times)
        if best is None or total < best.seconds:
            best = Stages(tuple(stages), total, 0, 0)
    return None if best is None else Stages(best.stages, best.seconds, tried, states)


class _Bounded:
    """F(s, k, d): least sum of s stages for the layers from k on, on d devices, none slower than
    the bound.
    """

    def __init__(
        self, seconds: Floats, fits: npt.NDArray[np.bool_], sizes: Sequence[int], devices: int
    ) -> None:
        self._sizes, self._devices = sizes, devices
        self._count = count = seconds.shape[0]
        self.least = np.full((count + 1, count + 1, devices + 1), np.inf)
        self.least[0, count, 0] = 0.0
        self._how = np.zeros((count + 1, count + 1, devices + 1, 2), np.int64)
        self.states = 0
        for number in range(1, count + 1):
            if not self._add(number, np.where(fits[number - 1], seconds, np.inf)):
                break

    def _add(self, number: int, seconds: Floats) -> bool:
        """One stage more in front; whether anything is reached."""
        behind = self.least[number - 1, 1:]
        for submesh, size in enumerate(self._sizes):
            if size > self._devices:
                continue
            sums = seconds[:, :, submesh, None] + behind[None, :, : self._devices + 1 - size]
            chosen = sums.argmin(axis=1)
            found = np.take_along_axis(sums, chosen[:, None], axis=1)[:, 0]
            now = self.least[number, : self._count, size:]
            better = found < now
            now[better] = found[better]
            how = self._how[number, : self._count, size:]
            how[better] = np.stack([chosen, np.full_like(chosen, submesh)], axis=-1)[better]
            self.states += sums.size
        return bool(np.isfinite(self.least[number]).any())

    def stages(self) -> list[StageChoice] | None:
        number = int(self.least[:, 0, self._devices].argmin())
        if not np.isfinite(self.least[number, 0, self._devices]):
            return None
        found, begin, left = [], 0, self._devices
        for count in range(number, 0, -1):
            last, submesh = (int(value) for value in self._how[count, begin, left])
            found.append(StageChoice(begin, last + 1, submesh))
            begin, left = last + 1, left - self._sizes[submesh]
        return found


def tile_devices(stages: Sequence[StageChoice], sizes: Sequence[int]) -> list[range]:
    """Return consecutive devices for each stage.

    Larger submeshes come first, so that each is within a node or on whole nodes.
    """
    order = sorted(range(len(stages)), key=lambda number: (-sizes[stages[number].submesh], number))
    starts = [0, *itertools.accumulate(sizes[stages[number].submesh] for number in order)]
    placed = dict(zip(order, itertools.pairwise(starts), strict=True))
    return [range(*placed[number]) for number in range(len(stages))]
