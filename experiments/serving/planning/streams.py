"""Spatial sharing without priority: every model is a stream, and all that have work run side by side.

A kernel demands the units on which its blocks make as many waves as on all; a layer, whose blocks nobody
tells, the whole device. Those that demand more than there is get it in proportion, and take longer by as
much: two that would each fill the device have half of it each, and take twice as long. What they do to each
other's caches and memory bandwidth is not known. Weights are
brought in while there is room, asked or not (``Paging``).
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


def streams_with_work(models: Sequence[SharedModel], view: SharingView) -> list[int]:
    """Return the models whose requests wait, the first to be asked first, and all that are no real-time."""
    others = (place for place, model in enumerate(models) if not model.is_real_time)
    return [*dict.fromkeys(view.waiting), *others]


@dataclass(frozen=True)
class Streams:
    """Runs the first request of each model and all other models side by side, operator by operator."""

    device: SharedDevice
    models: Sequence[SharedModel]
    page_bandwidth: float

    def act(self, view: SharingView) -> Sequence[Action]:
        wanted = streams_with_work(self.models, view)
        paging = Paging(self.device, self.models, self.page_bandwidth)
        return paging.bring_in(wanted, view) or list(self._start(wanted, view))

    def _start(self, wanted: Sequence[int], view: SharingView) -> Iterator[Action]:
        demands = {place: self._demand(place, view) for place in wanted}
        over, free = max(1.0, sum(demands.values()) / self.device.units), view.free_units
        for place in wanted:
            units = min(max(1, int(demands[place] / over)), free)
            if place in view.running or not units:
                continue
            if view.resident[place] == len(self.models[place].operators):
                at = view.position[place]
                seconds = self.models[place].operators[at].seconds * demands[place] / units
                yield Launch(place, at, at + 1, units, seconds)
                free -= units

    def _demand(self, place: int, view: SharingView) -> int:
        """Units that the operator can use which the model runs, or is to run next."""
        return self.models[place].operators[view.position[place]].demand(self.device.units)


@dataclass(frozen=True)
class Paging:
    """Whole models that are brought in at ``bandwidth`` (bytes/s) when their processes start, if they fit.

    Where all do not fit together, the model that is first in turn drives out idle ones until there is room;
    theirs come back when it is their turn.
    """

    device: SharedDevice
    models: Sequence[SharedModel]
    bandwidth: float

    def bring_in(self, wanted: Sequence[int], view: SharingView) -> Sequence[Action]:
        """Return the copy of one model that is not there, and who leaves for it; ``wanted`` ones go first."""
        absent = [one for one, model in enumerate(self.models) if view.copied[one] < len(model.operators)]
        for place in sorted(absent, key=lambda one: one not in wanted):
            if actions := list(self._page_in(place, view, may_evict=[place] == wanted[:1])):
                return actions
        return ()

    def _page_in(self, place: int, view: SharingView, may_evict: bool) -> Iterator[Action]:
        model = self.models[place]
        held = {one: self.models[one].bytes for one in range(len(self.models)) if view.copied[one]}
        for one in sorted(held, key=lambda one: (self.models[one].is_real_time, one)):
            if sum(held.values()) + model.bytes <= self.device.memory:
                break
            if may_evict and one not in view.running and view.resident[one] == view.copied[one]:
                del held[one]
                yield Evict(one)
        if sum(held.values()) + model.bytes <= self.device.memory:
            yield Copy(place, len(model.operators), model.bytes / self.bandwidth)
