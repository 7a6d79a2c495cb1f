"""Epochs of Nexus (section 6.1): sessions are packed anew by the rates that were seen, where these changed.

A session is packed for more as soon as more came than it was packed for, and for less only below ``SHRINKS``
of it, so that noise moves nothing. All sessions are packed from scratch; devices keep as many bytes of
weights as they can, and what they lack is copied over their host's link. Requests that wait go on in the
queues of the new devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from experiments.serving.interface.deployment import Action, DeploymentView, Group, Regroup, Reject, Wake
from experiments.serving.policies.nexus.packing import Gpu, Packing
from experiments.serving.policies.nexus.turns import Turns

#: A smaller estimate than this share of what a session was packed for shrinks it; the least estimate (1/s).
SHRINKS, LEAST_RATE = 0.97, 0.1
NOWHERE = "no device is left for the model in this epoch"


class Epochs(Turns):
    """``repack`` says what the rates of all models (1/s) need; the first packing is by those told."""

    def __init__(
        self, packing: Packing, devices: int, epoch: float, repack: Callable[[Sequence[float]], Packing]
    ) -> None:
        super().__init__(packing, devices)
        self.devices, self.epoch, self.repack = devices, epoch, repack
        self.came: list[int] = []
        self.packed_for: dict[int, float] = {}
        self.is_watching = False
        self._note(packing)

    def _note(self, packing: Packing) -> None:
        self.packed_for = {}
        for turn in (turn for gpu in packing.gpus for turn in gpu.turns):
            model = turn.session.place
            self.packed_for[model] = self.packed_for.get(model, 0.0) + turn.rate

    def on_arrival(self, request: int, view: DeploymentView) -> Sequence[Action]:
        self.came = self.came or [0] * len(view.deployment.models)
        self.came[view.model[request]] += 1
        actions = super().on_arrival(request, view)
        if self.is_watching:
            return actions
        self.is_watching = True
        return (*actions, Wake(view.now + self.epoch))

    def on_time(self, view: DeploymentView) -> Sequence[Action]:
        """The end of an epoch; after one without a request the next begins with the next request."""
        rates = [max(LEAST_RATE, count / self.epoch) for count in self.came]
        is_idle, self.came = not any(self.came), [0] * len(rates)
        self.is_watching = not is_idle
        if is_idle:
            return ()
        again = (Wake(view.now + self.epoch),)
        return (*self._move(self.repack(rates), view), *again) if self._has_changed(rates) else again

    def _has_changed(self, rates: Sequence[float]) -> bool:
        packed = [self.packed_for.get(model, 0.0) for model in range(len(rates))]
        return any(
            (rate > had or rate < SHRINKS * had) and max(rate, had) > LEAST_RATE
            for rate, had in zip(rates, packed, strict=True)
        )

    def _move(self, packing: Packing, view: DeploymentView) -> list[Action]:
        """Exchange the devices' sessions; what waits is given to the new ones."""
        self._note(packing)
        self.infeasible = packing.infeasible
        waiting = [(model, queue) for queues in self.queues for model, queue in queues.items()]
        self.turn_over(self._assign(packing.gpus[: self.devices], view))
        groups = tuple(
            Group((device,), models=tuple(turn.session.place for turn in gpu.turns))
            for device, gpu in enumerate(self.gpus)
        )
        actions: list[Action] = [Regroup(groups, is_free=False)]
        for request in sorted((r for _, queue in waiting for r in queue), key=lambda r: (view.ready[r], r)):
            model = view.model[request]
            if model in self.hosts:
                self.queues[self._choose(model)][model].append(request)
            else:
                actions.append(Reject(request, self.infeasible.get(model, NOWHERE)))
        return actions

    def _assign(self, gpus: Sequence[Gpu], view: DeploymentView) -> list[Gpu]:
        """The packed devices in the places where most bytes of their weights are; others stay empty."""
        from scipy.optimize import linear_sum_assignment  # scipy takes a while to load

        there: list[set[int]] = [set() for _ in range(self.devices)]
        for group in view.groups:
            there[group.group.devices[0]].update(group.resident)
        models = view.deployment.models
        needed = [{turn.session.place for turn in gpu.turns} for gpu in gpus]
        kept = np.zeros((len(gpus), self.devices))
        for row, device in np.ndindex(kept.shape):
            kept[row, device] = math.fsum(models[one].bytes for one in needed[row] & there[device])
        found = [Gpu(math.inf, ())] * self.devices
        rows, places = linear_sum_assignment(-kept)
        for row, device in zip(rows.tolist(), places.tolist(), strict=True):
            found[device] = gpus[row]
        return found
