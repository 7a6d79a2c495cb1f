"""The partial allocation auction (Cole, Gkatzelis and Goel, EC'13; Themis, section 5.1).

Each bidder tells what each number of devices is worth to it. The outcome has the largest product of worths;
whoever wins keeps its devices with the probability ``c`` = product of the others' worths with it over their
largest product without it. What a bidder then expects is its worth times ``c``: the product of all over
something that it has no say in, so that no bid serves it better than the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.workloads.step import Floats

#: What each number of devices (1 or more) is worth, above 0.
Bid = Mapping[int, float]


@dataclass(frozen=True)
class Outcome:
    """Devices of each bidder, and the probability that it keeps them."""

    devices: tuple[int, ...]
    kept: tuple[float, ...]


def hold(bids: Sequence[Bid], devices: int) -> Outcome:
    """Return the outcome of an auction of ``devices``, of which each bidder gets one at least.

    There are no more bidders than devices.
    """
    before = [np.zeros(devices + 1)]
    for bid in bids:
        before.append(_with(before[-1], bid))
    behind = [np.zeros(devices + 1)]
    for bid in reversed(bids):
        behind.append(_with(behind[-1], bid))
    behind.reverse()
    won = _trace_back(bids, before, devices)
    total = sum(math.log(bid[size]) for bid, size in zip(bids, won, strict=True))
    kept = []
    for place, (bid, size) in enumerate(zip(bids, won, strict=True)):
        others = total - math.log(bid[size])
        without = float((before[place] + behind[place + 1][::-1]).max())
        kept.append(min(1.0, math.exp(others - without)))
    return Outcome(won, tuple(kept))


def _with(best: Floats, bid: Bid) -> Floats:
    """The largest sum of logarithms by devices at hand, with one more bidder."""
    out = np.full(len(best), -np.inf)
    for size, worth in bid.items():
        if size < len(best):
            np.maximum(out[size:], best[: len(best) - size] + math.log(worth), out=out[size:])
    return out


def _trace_back(bids: Sequence[Bid], best: Sequence[Floats], devices: int) -> tuple[int, ...]:
    """Who has how many of an outcome with the largest product; fewer devices where that is as good."""
    won = list[int]()
    for place in range(len(bids), 0, -1):
        bid = bids[place - 1]
        sizes = [size for size in sorted(bid) if size <= devices]
        size = max(sizes, key=lambda size: (best[place - 1][devices - size] + math.log(bid[size]), -size))
        won.append(size)
        devices -= size
    return tuple(reversed(won))
