"""NVIDIA MPS, a baseline of PipeSwitch: processes whose kernels meet on one device, without priority.

Training goes on while a request is computed. The device's dispatcher takes kernels in the order of their
launch and hands out all blocks of one before it turns to the next (Amert et al., RTSS'17, found this rule by
experiment, within one address space of a TX2). A stream launches its next kernel when the one before has
ended. So where kernels fill the device, each of a request waits for one of training, however short it is
itself: what counts is how many kernels a request has, not its seconds or bytes. Kernels that leave units free
run side by side.

Each process brings its weights in when it starts; pages that do not fit together move on a fault, at
``fault_bandwidth`` (2 to 4 GB/s as a rule of thumb for such faults, without a source; the default is between
them). In PipeSwitch's log everything fits (decision 0216)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.sharing import (
    Action,
    Launch,
    SharedDevice,
    SharedModel,
    Sharer,
    SharingPolicy,
    SharingView,
)
from experiments.serving.planning.streams import Paging, streams_with_work


@dataclass(frozen=True)
class Mps(SharingPolicy):
    """Runs kernels of all processes in the order of their launch, side by side as far as they leave units."""

    name: ClassVar[str] = "mps"

    fault_bandwidth: float = knob(3e9, "of pages on a fault", low=1e6, high=1e12, unit="bytes/s")

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        return _InOrderOfLaunch(device, models, Paging(device, models, self.fault_bandwidth))

    def starts_resident(self, model: SharedModel) -> bool:
        return not model.is_real_time


@dataclass
class _InOrderOfLaunch:
    device: SharedDevice
    models: Sequence[SharedModel]
    paging: Paging
    launched: list[int] = field(default_factory=list)
    """Models whose next kernel waits for units, in the order of their launch."""

    def act(self, view: SharingView) -> Sequence[Action]:
        wanted = streams_with_work(self.models, view)
        if paged := self.paging.bring_in(wanted, view):
            return paged
        ready = [one for one in wanted if one not in view.running and self._is_there(one, view)]
        kept = [one for one in self.launched if one in ready]
        self.launched = [*kept, *(one for one in ready if one not in kept)]
        return list(self._dispatch(view))

    def _is_there(self, model: int, view: SharingView) -> bool:
        return view.resident[model] == len(self.models[model].operators)

    def _dispatch(self, view: SharingView) -> Iterator[Action]:
        """Who is first in line and finds too few units holds up all behind it."""
        free = view.free_units
        while self.launched:
            model = self.launched[0]
            at = view.position[model]
            kernel = self.models[model].operators[at]
            units = kernel.demand(self.device.units)
            if units > free:
                return
            free -= units
            del self.launched[0]
            yield Launch(model, at, at + 1, units, kernel.seconds)
