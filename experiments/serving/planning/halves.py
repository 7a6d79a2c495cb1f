"""Spatial sharing without priority: real-time and other work each have half of the device while both run.

Two jobs that would each fill the device take twice as long (a slow-down of 2). Where weights do not fit
together, the asked model's pages replace the others', and come back afterwards; ``page_bandwidth`` carries
them (bytes/s).
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
class Halves:
    """Runs the first request and one other model side by side, operator by operator."""

    device: SharedDevice
    models: Sequence[SharedModel]
    page_bandwidth: float

    def act(self, view: SharingView) -> Sequence[Action]:
        asked = view.waiting[0] if view.waiting else None
        others = [place for place, model in enumerate(self.models) if not model.is_real_time]
        other = min(others, key=lambda place: (view.passes[place], place), default=None)
        busy = [place for place in others if place in view.running]
        chosen = busy[0] if busy else other
        wanted = [place for place in (asked, chosen) if place is not None]
        return list(self._start(wanted, view))

    def _start(self, wanted: Sequence[int], view: SharingView) -> Iterator[Action]:
        units = max(1, self.device.units // 2) if len(wanted) == 2 else self.device.units
        free = view.free_units
        for rank, place in enumerate(wanted):
            if place in view.running or units > free:
                continue
            if view.copied[place] < len(self.models[place].operators):
                yield from self._page_in(place, view, may_evict=rank == 0)
            elif view.resident[place] == len(self.models[place].operators):
                at = view.position[place]
                seconds = self.models[place].operators[at].seconds * self.device.units / units
                yield Launch(place, at, at + 1, units, seconds)
                free -= units

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
