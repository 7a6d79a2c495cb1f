"""Stop-and-start, the baseline of PipeSwitch: what runs is killed, and a process is made for what is asked.

The new process starts (interpreter, framework, context: ``process_start``), weights are copied from memory
that is not pinned, and the first call initializes libraries (``first_call``). Nothing of this overlaps. What
was running starts again in the same way when no request waits.

Measured, a model of the zoo trains on this host's GPU, and each request starts a process
(``live.switching``); a first one tells the costs by which the others are predicted.

Neither cost is published by its parts. The defaults are round figures of ours, not measured, and chosen
with the totals of the authors' log in sight, so that a comparison with it is no evidence (the suite
``serving-switching`` takes one model's row and predicts two others); a host's own belong in the knobs. Copies
from pageable memory go through a pinned buffer: half of the link's bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.sharing import (
    Action,
    Copy,
    Evict,
    Hold,
    HostCosts,
    Kill,
    Launch,
    SharedDevice,
    SharedModel,
    Sharer,
    SharingPolicy,
    SharingView,
)


@dataclass(frozen=True)
class StopAndStart(SharingPolicy):
    """Kills what runs and starts a new process for the asked model."""

    name: ClassVar[str] = "stop_and_start"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("requests",),
        "measured": ("model",),
    }
    starts_processes: ClassVar[bool] = True

    process_start: float = knob(
        4.0, "starting a process, importing a framework, making a context", low=0.0, high=600.0, unit="s"
    )
    first_call: float = knob(1.0, "initializing libraries at the first call", low=0.0, high=600.0, unit="s")
    pageable_share: float = knob(0.5, "of the link's bandwidth that pageable memory gets", low=0.01, high=1.0)

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        start = self.process_start + self.first_call
        return _Processes(device, models, start, device.bandwidth * self.pageable_share)

    def on_host(self, costs: HostCosts) -> StopAndStart:
        return replace(
            self,
            process_start=costs.start,
            first_call=costs.first_call,
            pageable_share=min(1.0, max(0.01, costs.pageable)),
        )

    def starts_resident(self, model: SharedModel) -> bool:
        return not model.is_real_time


class _Processes:
    def __init__(
        self, device: SharedDevice, models: Sequence[SharedModel], start: float, bandwidth: float
    ) -> None:
        self.device, self.models, self.start, self.bandwidth = device, models, start, bandwidth
        self.others = [place for place, model in enumerate(models) if not model.is_real_time]
        self.active = self.others[0] if self.others else None

    def act(self, view: SharingView) -> Sequence[Action]:
        wanted = view.waiting[0] if view.waiting else next(iter(self.others), None)
        if wanted is None:
            return ()
        if wanted != self.active:
            return self._replace(wanted)
        model, at = self.models[wanted], view.position[wanted]
        count = len(model.operators)
        if view.running or view.resident[wanted] < view.copied[wanted]:
            return ()
        if view.copied[wanted] < count:
            return (Copy(wanted, count, model.bytes / self.bandwidth),)
        last = count if model.is_real_time else at + 1
        seconds = sum(one.seconds for one in model.operators[at:last])
        return (Launch(wanted, at, last, self.device.units, seconds),)

    def _replace(self, wanted: int) -> Sequence[Action]:
        stopped, self.active = self.active, wanted
        leave = () if stopped is None else (Kill(stopped, 0), Evict(stopped))
        return (*leave, Hold(self.start))
