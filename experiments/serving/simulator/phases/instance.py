"""One instance in a run: its pipeline, and the passes that it is making.

A pass that would be filled alike again is made as often as nothing happens. These passes are booked when
something happens or when they end: one that has begun is not taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.serving.interface.phases import InstanceView
from experiments.serving.interface.step_load import Entry, StepLoad, StepPrice
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class InstanceEngine:
    """``price`` of a pass through one stage, and the KV ``blocks`` of all devices together."""

    price: StepPrice
    blocks: int


@dataclass
class Flight:
    """Passes under way over ``entries``: each leaves the instance at one of ``ends``."""

    entries: Sequence[Entry]
    load: StepLoad
    start: float
    free: float
    ends: Floats
    has_landed: bool = False


class InstanceRun:
    """The clock of an instance's stages; of an ``open`` flight there may be fewer passes yet.

    Blocks of the passes after its first are not taken before it is closed.
    """

    def __init__(self, view: InstanceView, price: StepPrice) -> None:
        self.view, self.price = view, price
        self.leaves = [float("-inf")] * view.instance.shape.pipeline
        self.open: Flight | None = None

    @property
    def free(self) -> float:
        """When the first stage can begin another pass."""
        return self.leaves[0]

    def launch(self, most: int, now: float) -> Flight:
        """Begin the filled pass, or up to ``most`` alike one after another."""
        load = StepLoad.of(self.view.entries)
        times = self.price.seconds(load, most)
        idle = now - max(self.leaves)
        times[0] += self.price.wake_seconds(idle) if idle > 0 else 0.0
        if len(self.leaves) > 1:
            ends = np.array([self._enter(float(times[0]), now)])
        else:
            ends = now + np.cumsum(times)
            self.leaves[0] = float(ends[-1])
        flight = Flight(self.view.entries, load, now, self.leaves[0], ends)
        if len(ends) > 1:
            self.open = flight
        return flight

    def _enter(self, seconds: float, now: float) -> float:
        """Stage by stage, behind the pass before; returns when the last one is left."""
        time = now
        for stage, left in enumerate(self.leaves):
            time = self.leaves[stage] = max(time, left) + seconds
        return time

    def grown(self, now: float) -> int:
        """Tokens that open passes have added so far and nobody booked."""
        if self.open is None:
            return 0
        return int(np.searchsorted(self.open.ends, now)) * len(self.open.entries)

    def close(self, now: float) -> Flight | None:
        """Ends open passes behind the one that is under way; the flight, where that made it shorter."""
        flight, self.open = self.open, None
        if flight is None:
            return None
        begun = min(len(flight.ends), int(np.searchsorted(flight.ends, now)) + 1)
        is_shorter = begun < len(flight.ends)
        flight.ends = flight.ends[:begun]
        self.view.repeat_entries(flight.entries, begun - 1)
        flight.free = self.leaves[0] = float(flight.ends[-1])
        return flight if is_shorter else None
