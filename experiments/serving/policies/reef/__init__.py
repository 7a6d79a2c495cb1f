"""REEF, OSDI'22: best-effort kernels are killed within microseconds, and fill what real-time kernels leave.

On a request the host queues of best-effort kernels are cleared, a flag makes those in the device queue return
at once, and the compute units are reset as often as the queue is deep: ``flush`` + (``queue`` + 1) ``reset``,
whatever runs. Kernels are idempotent, so all that may not have finished is computed again. Where units cannot
be reset (``REEF-N``) what runs ends first; ``wait`` is the baseline that lets the device queue empty too.
Real-time passes run one after another; each of their kernels is padded with blocks of the first best-effort
kernel that fits (``padding``).

The parts of a reset are not published, only that a preemption takes less than 40 us: the defaults sum to that
with a queue of 4. The merged kernel's occupancy is taken as the smaller of the two, since profiles have no
registers. Of several best-effort models one kernel runs at a time, in turn by pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.sharing import (
    Action,
    Hold,
    Kill,
    Launch,
    SharedDevice,
    SharedModel,
    Sharer,
    SharingPolicy,
    SharingView,
)
from experiments.serving.policies.reef.padding import pad, restart_point


@dataclass(frozen=True)
class Reef(SharingPolicy):
    """Resets the device for real-time kernels, and pads them with blocks of best-effort ones."""

    name: ClassVar[str] = "reef"

    preemption: str = knob("reset", "how best-effort kernels make room", choices=("reset", "REEF-N", "wait"))
    padding: bool = knob(True, "fill real-time kernels with best-effort blocks")
    queue: int = knob(4, "kernels that a device queue holds", low=1, high=1024)
    flush: float = knob(5e-6, "writing the flag and clearing host queues", low=0.0, high=1.0, unit="s")
    reset: float = knob(7e-6, "one reset of the compute units", low=0.0, high=1.0, unit="s")
    proxy: float = knob(0.5e-6, "added to a padded real-time kernel", low=0.0, high=1.0, unit="s")

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        return _Reef(self, device, models)


class _Reef:
    def __init__(self, policy: Reef, device: SharedDevice, models: Sequence[SharedModel]) -> None:
        self.policy, self.device, self.models = policy, device, models
        self.best_effort = [place for place, model in enumerate(models) if not model.is_real_time]
        self.is_real_time = False
        self.draining: int | None = None

    def act(self, view: SharingView) -> Sequence[Action]:
        if not view.waiting:
            self.is_real_time = False
            return () if view.running else self._resume(view)
        if not self.is_real_time:
            return self._preempt(view)
        return () if view.running else list(self._serve(view.waiting[0], view))

    def _preempt(self, view: SharingView) -> Sequence[Action]:
        running = next(iter(view.running), None)
        if running is not None:
            if self.policy.preemption == "reset":
                self.is_real_time = True
                return self._reset(running, view)
            if self.policy.preemption == "wait" and self.draining is None:
                self.draining = self.policy.queue
            return ()
        if self.draining:
            self.draining -= 1
            return self._resume(view)
        self.is_real_time, self.draining = True, None
        return self.act(view)

    def _reset(self, running: int, view: SharingView) -> Sequence[Action]:
        """All that a device queue held may not have finished."""
        count, at, queue = len(self.models[running].operators), view.position[running], self.policy.queue
        cleared = count - min(count, at + queue)
        seconds = self.policy.flush + (queue + 1) * self.policy.reset
        return (Kill(running, restart_point(0, count, cleared, queue)), Hold(seconds))

    def _resume(self, view: SharingView) -> Sequence[Action]:
        """One kernel of the best-effort model with the fewest passes."""
        if not self.best_effort:
            return ()
        model = min(self.best_effort, key=lambda place: (view.passes[place], place))
        at = view.position[model]
        kernel = self.models[model].operators[at]
        share = 1 - view.offset[model] / kernel.blocks
        return (Launch(model, at, at + 1, self.device.units, kernel.seconds * share),)

    def _serve(self, model: int, view: SharingView) -> Iterator[Action]:
        """The next real-time kernel, padded where something fits."""
        at = view.position[model]
        kernel = self.models[model].operators[at]
        for other in self.best_effort if self.policy.padding else ():
            filler = self.models[other].operators[view.position[other]]
            merged = min(len(kernel.waves), len(filler.waves))
            if merged < min(-(-kernel.blocks // self.device.units), len(kernel.waves)):
                continue
            left = filler.blocks - view.offset[other]
            found = pad(kernel, filler, left, self.device.units, merged)
            if found is not None:
                seconds, place = kernel.seconds + self.policy.proxy, view.position[other]
                rest = self.device.units - found.real_time_units
                yield Launch(model, at, at + 1, found.real_time_units, seconds)
                yield Launch(other, place, place + 1, rest, seconds, found.blocks)
                return
        yield Launch(model, at, at + 1, self.device.units, kernel.seconds)
