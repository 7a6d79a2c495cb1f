"""Spatial sharing without priority: every model is a stream, and all that have work run side by side.

A kernel demands the units on which its blocks make as many waves as on all; a layer, whose blocks nobody
tells, the whole device. Those that demand more than there is get it in proportion, and take longer by as
much: two that would each fill the device have half of it each, and take twice as long. What they do to each
other's caches and memory bandwidth is not known. Where weights do not fit together, the asked model's pages
replace the others', and come back afterwards; ``page_bandwidth`` carries them (bytes/s).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.serving.interface.sharing import (
    Action,
    Copy,
    Evict,
    Launch,
    SharedDevice,
    SharedModel,
    SharingView,
)


@dataclass(frozen=True)
class Streams:
    """Runs the first request of each model and all other models side by side, operator by operator."""

    device: SharedDevice
    models: Sequence[SharedModel]
    page_bandwidth: float

    def act(self, view: SharingView) -> Sequence[Action]:
        others = [place for place, model in enumerate(self.models) if not model.is_real_time]
        return list(self._start([*dict.fromkeys(view.waiting), *others], view))

    def _start(self, wanted: Sequence[int], view: SharingView) -> Iterator[Action]:
        demands = {place: self._demand(place, view) for place in wanted}
        over, free = max(1.0, sum(demands.values()) / self.device.units), view.free_units
        for rank, place in enumerate(wanted):
            units = min(max(1, int(demands[place] / over)), free)
            if place in view.running or not units:
                continue
            if view.copied[place] < len(self.models[place].operators):
                yield from self._page_in(place, view, may_evict=rank == 0)
            elif view.resident[place] == len(self.models[place].operators):
                at = view.position[place]
                seconds = self.models[place].operators[at].seconds * demands[place] / units
                yield Launch(place, at, at + 1, units, seconds)
                free -= units

    def _demand(self, place: int, view: SharingView) -> int:
        """Units that the operator can use which the model runs, or is to run next."""
        return self.models[place].operators[view.position[place]].demand(self.device.units)

    def _page_in(self, place: int, view: SharingView, may_evict: bool) -> Iterator[Action]:
        """Bring a model in; the first in turn drives out idle ones until there is room."""
        model = self.models[place]
        held = {one: self.models[one].bytes for one in range(len(self.models)) if view.copied[one]}
        for one in sorted(held, key=lambda one: (self.models[one].is_real_time, one)):
            if sum(held.values()) + model.bytes <= self.device.memory:
                break
            if may_evict and one not in view.running and view.resident[one] == view.copied[one]:
                del held[one]
                yield Evict(one)
        if sum(held.values()) + model.bytes <= self.device.memory:
            yield Copy(place, len(model.operators), model.bytes / self.page_bandwidth)
