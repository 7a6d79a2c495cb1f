"""Caps of memory, step by step (AntMan, section 3.2): what is over its cap lies in host memory, and goes on.

The guaranteed job's cap is what its last pass needed, and the rest is the opportunistic jobs'. A pass that
needs more than is free allocates the difference on the host, so that nothing ever lacks memory; then bytes
of the others leave over the host's link, and its own come back. What lies on the host is read from there
once in every pass, on top of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.serving.interface.sharing import Action, Launch, Move, SharedDevice, SharedModel, SharingView

#: Bytes that are not worth a copy: rounding.
NOTHING = 1.0


class Caps:
    """Who has how much of the device's memory; models that tell no ``peaks`` never move."""

    def __init__(self, device: SharedDevice, models: Sequence[SharedModel]) -> None:
        self.device, self.models = device, models
        self.guaranteed = [place for place, model in enumerate(models) if model.is_real_time]
        self.others = [place for place, model in enumerate(models) if not model.is_real_time]
        self.is_told = any(model.peaks for model in models)

    def spill(self, launch: Launch, view: SharingView) -> Iterator[Action]:
        """What a pass that begins lacks of memory is allocated on the host."""
        if (lacking := self._lacking(launch, view)) > 0:
            yield Move(launch.model, lacking, 0.0)

    def lengthen(self, launch: Launch, view: SharingView) -> Launch:
        """Return the launch with its part of reading from the host what lies there in its pass."""
        if not self.is_told:
            return launch
        away = max(0.0, view.on_host[launch.model] + min(0.0, self._growth(launch, view)))
        away += self._lacking(launch, view)
        whole = self.models[launch.model].seconds
        part = launch.seconds / whole if whole else 0.0
        return launch._replace(seconds=launch.seconds + part * away / self.device.bandwidth)

    def _growth(self, launch: Launch, view: SharingView) -> float:
        """Bytes that the model needs more from this launch on: another pass may need others."""
        begins = launch.first == 0
        return (
            self.models[launch.model].bytes_in(view.passes[launch.model]) - view.need[launch.model]
            if begins
            else 0.0
        )

    def _lacking(self, launch: Launch, view: SharingView) -> float:
        """Bytes of that beyond what is free."""
        return max(0.0, self._growth(launch, view) - self._free(view)) if self.is_told else 0.0

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

    def _free(self, view: SharingView) -> float:
        return self.device.memory - sum(view.need) + sum(view.on_host)

    def _move(self, model: int, size: float) -> Move:
        return Move(model, size, self.device.call_time + abs(size) / self.device.bandwidth)
