"""A placer that learns: REINFORCE over the devices of groups of layers, one group after another.

Source: Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML'17, section 3.
The policy there is a sequence-to-sequence network with attention; this one is a softmax whose score for a
device is linear in what is known of it when the group's turn comes, plus a weight for each pair of group and
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.workloads.step import Floats

Placement = tuple[int, ...]
#: What a score sees of a device: was it the last group's, which part of the inputs is there, which part of
#: the work.
FEATURES = 3
DECAY, SMALL = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Groups:
    """Seconds of each group, the earlier groups that it reads, and their bytes. Lengths: (groups,)."""

    seconds: Sequence[float]
    reads: Sequence[Sequence[tuple[int, float]]]

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True)
class Drawn:
    """A placement and the gradient of its log probability. Shapes: (groups, devices) and (features,)."""

    placement: Placement
    table: Floats
    weights: Floats


@dataclass
class Placer:
    """A distribution over placements that is learned by Adam steps of size ``rate``.

    ``table[group, device] + weights . features`` is what is learned.
    """

    groups: Groups
    devices: int
    random: np.random.Generator
    rate: float
    table: Floats = field(init=False)
    weights: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.table = np.zeros((len(self.groups), self.devices))
        self.weights = np.zeros(FEATURES)
        self._moments = [(np.zeros_like(part), np.zeros_like(part)) for part in (self.table, self.weights)]
        self._updates = 0

    def draw(self, greedy: bool = False) -> Drawn:
        """Return a device for every group, drawn from the distribution or the likeliest one."""
        placement: list[int] = []
        table, weights = np.zeros_like(self.table), np.zeros_like(self.weights)
        load = np.zeros(self.devices)
        for group in range(len(self.groups)):
            seen = self._features(group, placement, load)
            odds = _softmax(self.table[group] + seen @ self.weights)
            device = int(odds.argmax()) if greedy else int(self.random.choice(self.devices, p=odds))
            push = -odds
            push[device] += 1.0
            table[group] = push
            weights += push @ seen
            load[device] += self.groups.seconds[group]
            placement.append(device)
        return Drawn(tuple(placement), table, weights)

    def probability(self, placement: Placement) -> float:
        """Return the probability that ``draw`` gives ``placement``."""
        chance, load = 1.0, np.zeros(self.devices)
        for group, device in enumerate(placement):
            seen = self._features(group, placement[:group], load)
            chance *= float(_softmax(self.table[group] + seen @ self.weights)[device])
            load[device] += self.groups.seconds[group]
        return chance

    def _features(self, group: int, before: Sequence[int], load: Floats) -> Floats:
        """Shape: (devices, features)."""
        seen = np.zeros((self.devices, FEATURES))
        if before:
            seen[before[-1], 0] = 1.0
        total = sum(size for _, size in self.groups.reads[group])
        for source, size in self.groups.reads[group]:
            seen[before[source], 1] += size / total if total else 0.0
        seen[:, 2] = load / max(float(load.sum()), SMALL)
        return seen

    def learn(self, drawn: Sequence[Drawn], costs: Sequence[float], baseline: float) -> None:
        """Take one step down the mean of (cost - baseline) grad log p."""
        excess = [cost - baseline for cost in costs]
        slopes = (
            np.mean([e * d.table for e, d in zip(excess, drawn, strict=True)], axis=0),
            np.mean([e * d.weights for e, d in zip(excess, drawn, strict=True)], axis=0),
        )
        self._updates += 1
        for part, slope, (mean, square) in zip(
            (self.table, self.weights), slopes, self._moments, strict=True
        ):
            mean += (1 - DECAY[0]) * (slope - mean)
            square += (1 - DECAY[1]) * (slope**2 - square)
            steady = np.sqrt(square / (1 - DECAY[1] ** self._updates)) + SMALL
            part -= self.rate * mean / (1 - DECAY[0] ** self._updates) / steady


def _softmax(scores: Floats) -> Floats:
    raised: Floats = np.exp(scores - scores.max())
    odds: Floats = raised / raised.sum()
    return odds


@dataclass(frozen=True)
class PlacerSearch:
    """The fastest placement seen, its seconds, and the fastest of each update.

    In seconds; ``None``: none fitted.
    """

    placement: Placement | None
    seconds: float
    curve: tuple[float | None, ...]


def train(
    placer: Placer,
    seconds_of: Callable[[Placement], float | None],
    updates: int,
    samples: int,
    unfit: float,
    told: Callable[[int], None],
) -> PlacerSearch:
    """Train the placer on ``samples`` placements for each of ``updates``.

    The cost is the square root of the step's seconds (section 3.1).

    A placement without seconds does not fit: it costs ``unfit`` in the first half of the updates and is left
    out later, so that the policy does not drift on it. The baseline is a moving average of costs.
    """
    best: Placement | None = None
    fastest, baseline = float("inf"), None
    curve: list[float | None] = []
    for update in range(updates):
        drawn = [placer.draw(greedy=update == updates - 1) for _ in range(samples)]
        found = [seconds_of(one.placement) for one in drawn]
        for one, seconds in zip(drawn, found, strict=True):
            if seconds is not None and seconds < fastest:
                best, fastest = one.placement, seconds
        curve.append(min((s for s in found if s is not None), default=None))
        kept = [(o, unfit if s is None else s**0.5) for o, s in zip(drawn, found, strict=True)]
        if update >= updates // 2:
            kept = [pair for pair, seconds in zip(kept, found, strict=True) if seconds is not None]
        if kept:
            costs = [cost for _, cost in kept]
            baseline = (
                float(np.mean(costs)) if baseline is None else 0.9 * baseline + 0.1 * float(np.mean(costs))
            )
            placer.learn([one for one, _ in kept], costs, baseline)
        told(update)
    return PlacerSearch(best, fastest, tuple(curve))
