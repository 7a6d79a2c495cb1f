"""Caps of memory, step by step (AntMan, section 3.2): what is over its cap lies in host memory, and goes on.

The guaranteed job's cap is what its last pass needed, and the rest is the opportunistic jobs'. A pass that
needs more than is free allocates the difference on the host, so that nothing ever lacks memory; then bytes
of the others leave over the host's link, and its own come back. What lies on the host is read from there
once in every pass, on top of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.serving.interface.sharing import Action, Move, SharedDevice, SharedModel, SharingView

#: Bytes that are not worth a copy: rounding.
NOTHING = 1.0


class Caps:
    """Who has how much of the device's memory; models that tell no ``peaks`` never move."""

    def __init__(self, device: SharedDevice, models: Sequence[SharedModel]) -> None:
        self.device, self.models = device, models
        self.guaranteed = [place for place, model in enumerate(models) if model.is_real_time]
        self.others = [place for place, model in enumerate(models) if not model.is_real_time]
        self.is_told = any(model.peaks for model in models)

    def short(self, model: int, view: SharingView) -> float:
        """Bytes of the next pass of a model beyond what is free, which are allocated on the host."""
        if not self.is_told:
            return 0.0
        grown = self.models[model].need(view.passes[model]) - view.need[model]
        return max(0.0, grown - self._free(view))

    def balance(self, view: SharingView) -> Iterator[Action]:
        """One copy at a time: others make room, guaranteed jobs come back, then the others do."""
        if not self.is_told or view.moving:
            return
        away = sum(view.on_host[model] for model in self.guaranteed)
        free = self._free(view)
        if away > free + NOTHING:
            there = {one: view.need[one] - view.on_host[one] for one in self.others}
            largest = max(there, key=lambda one: (there[one], -one), default=None)
            if largest is not None and there[largest] > NOTHING:
                yield self._move(largest, min(away - free, there[largest]))
                return
        back = next((one for one in (*self.guaranteed, *self.others) if view.on_host[one] > NOTHING), None)
        if back is not None and free > NOTHING:
            yield self._move(back, -min(free, view.on_host[back]))

    def longer(self, model: int, seconds: float, view: SharingView, begins: bool) -> float:
        """Seconds of operators of a model, with their part of reading from the host in a pass."""
        away = view.on_host[model]
        if begins and self.is_told:
            grown = self.models[model].need(view.passes[model]) - view.need[model]
            away = max(0.0, away + min(0.0, grown) + self.short(model, view))
        whole = self.models[model].seconds
        return seconds + (seconds / whole if whole else 0.0) * away / self.device.bandwidth

    def _free(self, view: SharingView) -> float:
        return self.device.memory - sum(view.need) + sum(view.on_host)

    def _move(self, model: int, size: float) -> Move:
        return Move(model, size, self.device.call_time + abs(size) / self.device.bandwidth)
