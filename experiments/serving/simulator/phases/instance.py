"""One instance in a run: its pipeline, and the passes that it is making.

A pass that would be filled alike again is made as often as nothing happens. These passes are booked when
something happens or when they end: one that has begun is not taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.serving.interface.phases import InstanceView
from experiments.serving.interface.step_load import StepLoad, StepPrice
from experiments.serving.simulator.paged import most_steps
from experiments.serving.simulator.phases.flight import Flight
from experiments.serving.simulator.phases.rotation import FIRST, MOST, Rotation, Turns, plan_rotation


@dataclass(frozen=True)
class InstanceEngine:
    """``price`` of a pass through one stage, and the KV ``blocks`` of all devices together."""

    price: StepPrice
    blocks: int


class InstanceRun:
    """The clock of an instance's stages; of an ``open`` flight there may be fewer passes yet.

    Blocks of the passes after its first are not taken before it is closed.
    """

    def __init__(self, view: InstanceView, price: StepPrice) -> None:
        self.view, self.price = view, price
        self.leaves = [float("-inf")] * view.instance.shape.pipeline
        self.open: Flight | None = None
        #: Of a pipeline: passes inside it in their order, turns that were worked out, and how many next time.
        self.inside: deque[Flight] = deque()
        self.turns: Rotation | None = None
        self._next_turns = FIRST

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
        if len(self.leaves) > 1:
            self.inside.append(flight)
        if len(ends) > 1:
            self.open = flight
        return flight

    def _enter(self, seconds: float, now: float) -> float:
        """Stage by stage, behind the pass before; returns when the last one is left."""
        time = now
        for stage, left in enumerate(self.leaves):
            time = self.leaves[stage] = max(time, left) + seconds
        return time

    def leave(self, flight: Flight) -> None:
        """A pass is through the pipeline."""
        self.inside.remove(flight)
        self.view.leave_pipeline(flight.entries)

    def take_turns(self, home: Mapping[int, int], total: Sequence[int]) -> Rotation | None:
        """Work out further passes of all micro-batches, where nobody waits and each is filled as it was."""
        view, flights = self.view, self.inside
        entries = [entry for flight in flights for entry in flight.entries]
        share = view.fair_share
        is_alike = not (view.running or view.waiting or view.incoming) and all(
            not flight.load.prefill and len(flight.entries) <= share for flight in flights
        )
        if not is_alike or any(home.get(entry.request) != view.place for entry in entries):
            return None
        most = min(self._next_turns, most_steps(view, entries, total) - 2)
        self.turns = plan_rotation(tuple(flights), self.leaves, self.price, most)
        if self.turns is not None:
            for flight in flights:
                flight.has_landed = True
        return self.turns

    def stop_turns(self, now: float) -> list[Turns]:
        """Return what became of each micro-batch before ``now``, the first to land first."""
        rotation, self.turns = self.turns, None
        assert rotation is not None
        self._next_turns = min(max(FIRST, 2 * rotation.begun(now) // len(rotation.flights)), MOST)
        self.leaves = rotation.stages(now)
        found = sorted(rotation.turns(now), key=lambda turns: turns.last)
        self.inside = deque(turns.flight for turns in found if turns.flight is not None)
        for turns in found:
            self.view.repeat_entries(turns.entries, turns.more)
            if turns.flight is None:
                for entry in turns.entries:
                    self.view.known[entry.request] += 1
                self.view.leave_pipeline(turns.entries)
        return found

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
