"""AntMan, OSDI'20, for one device: operators of opportunistic jobs run in the gaps of a guaranteed one.

The guaranteed job's requests run at once and whole. An opportunistic operator cannot be stopped; it is
released only where it ends before the next request is predicted (``period``: the time between the last two,
counted from the last), so that nobody waits for it. Where a request has waited nevertheless for more than
``tolerance`` of the guaranteed pass, the next release is delayed: twice as long each time, and less by
``ease`` after every request that did not wait (the law of the feedback is not published).

Where models tell the memory of their passes (``peaks``), each has a cap of it, step by step, and what is over
lies in host memory (``memory``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from experiments.serving.policies.antman_inference.memory import Caps


@dataclass(frozen=True)
class AntManInference(SharingPolicy):
    """Releases opportunistic operators only where they end before the guaranteed job goes on."""

    name: ClassVar[str] = "antman_inference"
    spills: ClassVar[bool] = True

    gate: bool = knob(True, "release operators only into gaps that they fit")
    tolerance: float = knob(0.02, "wait of a request that is no interference, of its pass", low=0.0, high=1.0)
    ease: float = knob(
        1e-3, "by which a delay shrinks after a request without interference", low=0.0, high=1.0, unit="s"
    )

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        return _Gaps(self, device, models)


class _Gaps:
    def __init__(self, policy: AntManInference, device: SharedDevice, models: Sequence[SharedModel]) -> None:
        self.policy, self.device, self.models = policy, device, models
        self.opportunistic = [place for place, model in enumerate(models) if not model.is_real_time]
        self.caps = Caps(device, models)
        self.arrivals: list[float] = []
        self.waiting = 0
        self.delay = 0.0
        self.blocked_since: float | None = None

    def act(self, view: SharingView) -> Sequence[Action]:
        self._note_arrivals(view)
        self.waiting = len(view.waiting)
        if moves := list(self.caps.balance(view)):
            return moves
        if view.running:
            return ()
        if view.waiting:
            return self._serve(view)
        return self._release(view)

    def _note_arrivals(self, view: SharingView) -> None:
        if len(view.waiting) > self.waiting:
            self.arrivals = [*self.arrivals[-1:], view.now]
            if any(model in self.opportunistic for model in view.running):
                self.blocked_since = view.now

    def _serve(self, view: SharingView) -> Sequence[Action]:
        model = view.waiting[0]
        pass_time = self.models[model].seconds
        waited = 0.0 if self.blocked_since is None else view.now - self.blocked_since
        self.blocked_since = None
        if waited > self.policy.tolerance * pass_time:
            self.delay = max(2 * self.delay, self.policy.ease)
        else:
            self.delay = max(0.0, self.delay - self.policy.ease)
        count = len(self.models[model].operators)
        launch = self.caps.lengthen(Launch(model, 0, count, self.device.units, pass_time), view)
        return (*self.caps.spill(launch, view), launch)

    def _release(self, view: SharingView) -> Sequence[Action]:
        if not self.opportunistic:
            return ()
        model = min(self.opportunistic, key=lambda place: (view.passes[place], place))
        at = view.position[model]
        seconds = self.models[model].operators[at].seconds
        launch = self.caps.lengthen(Launch(model, at, at + 1, self.device.units, seconds), view)
        if self.policy.gate and view.now + self.delay + launch.seconds > self._next_request(view) + 1e-12:
            return ()
        return (*self.caps.spill(launch, view), launch)

    def _next_request(self, view: SharingView) -> float:
        """When the next request is predicted; one that is overdue may come at any moment."""
        if not self.arrivals:
            return math.inf
        if len(self.arrivals) == 1:
            return -math.inf
        return 2 * self.arrivals[-1] - self.arrivals[-2]
