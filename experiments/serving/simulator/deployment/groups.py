"""The state of groups of devices: what their stages are given, and which weights lie on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.core.errors import ImpossiblePlan
from experiments.serving.interface.deployment import (
    Deployment,
    Group,
    GroupView,
    Pass,
    Residence,
    group_fault,
)

#: Share of a device's bytes by which sums of floats may be over.
SLACK = 1e-9


class Groups:
    """All groups of a run, the passes that they were given and the stays of weights on them."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.views: list[GroupView] = []
        self.passes: list[Pass] = []
        self.residences: list[Residence] = []
        self._begun: list[dict[int, tuple[float, float, bool]]] = []
        self._last_use: list[dict[int, float]] = []

    def form(self, groups: Sequence[Group], now: float) -> None:
        """Begin with ``groups`` whose devices are free and hold nothing."""
        used = [device for group in groups for device in group.devices]
        if len(set(used)) != len(used):
            raise ImpossiblePlan([f"a device is in two groups at t={now:g} s"])
        for place, group in enumerate(groups):
            if fault := group_fault(group, self.deployment):
                raise ImpossiblePlan([f"group {place} at t={now:g} s: {fault}"])
        self.views[:] = [
            GroupView(group, [now] * group.pipeline, {}, [0.0] * group.pipeline) for group in groups
        ]
        self._begun = [{} for _ in groups]
        self._last_use = [{} for _ in groups]

    def settle(self, place: int, model: int, begin: float, ready: float, copied: bool) -> None:
        """Weights take a group's memory from ``begin`` on; ``ImpossiblePlan`` where it is full."""
        view = self.views[place]
        sizes = self._sizes(view.group, model)
        for stage, size in enumerate(sizes):
            view.used[stage] += size
            if view.used[stage] > self.deployment.cluster.memory * (1 + SLACK):
                over = f"{view.used[stage]:g} of {self.deployment.cluster.memory:g} bytes"
                raise self._illegal(place, f"{over} of stage {stage} with {self._name(model)}", begin)
        view.resident[model] = ready
        self._begun[place][model] = (begin, ready, copied)

    def load(self, place: int, model: int, now: float) -> float:
        """Copy weights to a group, behind other copies to it; return when they can be used."""
        view = self.views[place]
        if model in view.resident:
            raise self._illegal(place, f"{self._name(model)} is there already", now)
        if not self.deployment.models[model].cost.divides(view.group.pipeline, view.group.tensor):
            raise self._illegal(place, f"{self._name(model)} is not divided so", now)
        link = self.deployment.cluster.host_link
        ready = max(now, view.channel_free) + link.time(max(self._sizes(view.group, model)))
        self.settle(place, model, now, ready, copied=True)
        view.channel_free = ready
        return ready

    def unload(self, place: int, model: int, now: float) -> None:
        """Give up weights that no pass needs any more."""
        view = self.views[place]
        if not view.resident.get(model, math.inf) <= now:
            raise self._illegal(place, f"{self._name(model)} is given up but not there", now)
        if self._last_use[place].get(model, 0.0) > now:
            raise self._illegal(place, f"{self._name(model)} is given up inside a pass", now)
        del view.resident[model]
        for stage, size in enumerate(self._sizes(view.group, model)):
            view.used[stage] -= size
        self._end(place, model, now)

    def run(self, place: int, model: int, requests: tuple[int, ...], now: float) -> Pass:
        """Give a group a pass behind what it has: each stage begins when it and the one before are done.

        Weights that are on their way are waited for.
        """
        view = self.views[place]
        if model not in view.resident:
            raise self._illegal(place, f"{self._name(model)} runs but is not there", now)
        enter, leave, time = [], [], max(now, view.resident[model])
        for stage, seconds in enumerate(view.group.stage_times(self.deployment.models[model], len(requests))):
            begin = max(time, view.free[stage])
            time = view.free[stage] = begin + seconds
            enter.append(begin)
            leave.append(time)
        made = Pass(view.group, model, requests, tuple(enter), tuple(leave))
        self._last_use[place][model] = max(time, self._last_use[place].get(model, 0.0))
        self.passes.append(made)
        return made

    def regroup(self, groups: Sequence[Group], now: float, is_free: bool) -> list[tuple[int, int, float]]:
        """Exchange all groups; return what is on its way to them: group, model and when it can be used.

        A device's clock goes on: what it was given ends first. Weights stay where a group has the devices and
        degrees that one had before; others are there at once if the exchange ``is_free``, else they are
        copied when the last pass before has left the group, and what was being copied to it has arrived.
        """
        old = {view.group.devices: place for place, view in enumerate(self.views)}
        busy, arriving = self._device_clocks(), self._channel_clocks()
        before, begun, uses = list(self.views), self._begun, self._last_use
        kept = [self._kept(group, old.get(group.devices), before) for group in groups]
        for place, view in enumerate(before):
            stays = next(
                (k for g, k in zip(groups, kept, strict=True) if g.devices == view.group.devices), {}
            )
            for model in [model for model in begun[place] if model not in stays]:
                self._end(place, model, max(now, view.resident[model], uses[place].get(model, 0.0)))
        self.form(groups, now)
        copies = []
        for place, group in enumerate(groups):
            view = self.views[place]
            view.free = [
                max([now, *(busy.get(d, 0.0) for d in group.stage(s))]) for s in range(group.pipeline)
            ]
            view.channel_free = max([now, *(arriving.get(device, 0.0) for device in group.devices)])
            copies += self._fill(place, kept[place], before, begun, uses, old, now, is_free)
        return copies

    def _fill(
        self,
        place: int,
        kept: dict[int, float],
        before: Sequence[GroupView],
        begun: Sequence[dict[int, tuple[float, float, bool]]],
        uses: Sequence[dict[int, float]],
        old: dict[tuple[int, ...], int],
        now: float,
        is_free: bool,
    ) -> list[tuple[int, int, float]]:
        """Weights of a new group: those that stay, then those that come."""
        view = self.views[place]
        copies = [(place, model, ready) for model, ready in kept.items() if ready > now]
        for model in kept:
            was = old[view.group.devices]
            begin, ready, copied = begun[was][model]
            self.settle(place, model, begin, ready, copied)
            self._last_use[place][model] = uses[was].get(model, 0.0)
        empty = max(view.channel_free, *view.free)
        view.channel_free = empty
        for model in view.group.models:
            if model in kept:
                continue
            link = self.deployment.cluster.host_link
            seconds = 0.0 if is_free else link.time(max(self._sizes(view.group, model)))
            ready = view.channel_free + seconds
            self.settle(place, model, empty, ready, copied=not is_free)
            view.channel_free = ready
            copies.append((place, model, ready))
        return copies

    def finish(self, end: float) -> None:
        """End all stays that last until the end of the run."""
        for place, begun in enumerate(self._begun):
            for model in list(begun):
                self._end(place, model, max(end, begun[model][1]))

    def _kept(self, group: Group, was: int | None, before: Sequence[GroupView]) -> dict[int, float]:
        if was is None or (before[was].group.pipeline, before[was].group.tensor) != (
            group.pipeline,
            group.tensor,
        ):
            return {}
        return {model: before[was].resident[model] for model in group.models if model in before[was].resident}

    def _device_clocks(self) -> dict[int, float]:
        clocks: dict[int, float] = {}
        for view in self.views:
            for stage, free in enumerate(view.free):
                for device in view.group.stage(stage):
                    clocks[device] = free
        return clocks

    def _channel_clocks(self) -> dict[int, float]:
        """When what is being copied to each device has arrived."""
        return {device: view.channel_free for view in self.views for device in view.group.devices}

    def _end(self, place: int, model: int, end: float) -> None:
        begin, ready, copied = self._begun[place].pop(model)
        self.residences.append(Residence(self.views[place].group, model, begin, ready, end, copied))

    def _sizes(self, group: Group, model: int) -> tuple[float, ...]:
        return self.deployment.models[model].cost.stage_bytes(group.pipeline, group.tensor)

    def _name(self, model: int) -> str:
        return f"model {self.deployment.models[model].name}"

    def _illegal(self, place: int, what: str, now: float) -> ImpossiblePlan:
        return ImpossiblePlan([f"group {place} at t={now:g} s: {what}"])
