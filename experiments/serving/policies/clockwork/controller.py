"""Clockwork's controller (OSDI'20, sections 4 and 5): one pass and one copy of weights at a time on a device.

A device that is free runs the model whose *latest start* is nearest: the deadline of its first request less
the pass, of the largest of five batches that its queue fills in time. A request that no pass could answer in
time any more is rejected before it costs one. A device whose link is idle is given the model of the highest
*priority*: seconds of work that wait for it, less what devices that have it can do of them in time. Room is
made by giving up what was used least recently, of models that nobody waits for first.

Weights are all on the host at first. Here an order reaches a device at once, so that none is given ahead of
time (the paper gives 5 ms of work ahead), and none can miss the window in which it was to run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from experiments.serving.interface.deployment import (
    Action,
    DeploymentView,
    Dispatcher,
    Load,
    Placement,
    Reject,
    Run,
    Unload,
    Wake,
)

BATCHES = (16, 8, 4, 2, 1)
#: Seconds in which devices are to do what waits for models without an objective: the paper's objective.
HORIZON = 0.1
ROUNDING = 1e-9
HOPELESS = "given up: no pass could answer it in time any more"


class Controller(Dispatcher):
    """``queues`` are requests by model, in the order of their deadlines; empty ones are left out.

    ``last_use`` of each model on each device is when its last pass ends (s), infinite before the first;
    ``busy`` is when each device ends what it was given.
    """

    def __init__(self, placement: Placement) -> None:
        self.unplaced = placement.unplaced
        self.queues: dict[int, deque[int]] = {}
        self.last_use: list[dict[int, float]] = [{} for _ in placement.groups]
        self.busy = [0.0] * len(placement.groups)

    def on_arrival(self, request: int, view: DeploymentView) -> Sequence[Action]:
        model = view.model[request]
        if model in self.unplaced:
            return (Reject(request, self.unplaced[model]),)
        self.queues.setdefault(model, deque()).append(request)
        hosts = (
            place
            for place, group in enumerate(view.groups)
            if group.resident.get(model, math.inf) <= view.now
        )
        actions: list[Action] = []
        for place in hosts:
            actions += self._run(place, view)
            if model not in self.queues:
                return actions
        return [*actions, *self._load(view), *self._watch(request, view)]

    def on_free(self, group: int, view: DeploymentView) -> Sequence[Action]:
        return [*self._run(group, view), *self._load(view)]

    def on_loaded(self, group: int, model: int, view: DeploymentView) -> Sequence[Action]:
        return [*self._run(group, view), *self._load(view)]

    def on_time(self, view: DeploymentView) -> Sequence[Action]:
        """The latest start of somebody has passed."""
        return [
            Reject(r, HOPELESS) for model in list(self.queues) for r in self._hopeless(model, view, -ROUNDING)
        ]

    def _watch(self, request: int, view: DeploymentView) -> Iterator[Wake]:
        latest = view.due[request] - _seconds(view.model[request], 1, view)
        if math.isfinite(latest):
            yield Wake(latest)

    def _hopeless(self, model: int, view: DeploymentView, slack: float = ROUNDING) -> Iterator[int]:
        """Take the requests out of a model's queue that a pass begun now would answer too late."""
        queue, least = self.queues[model], _seconds(model, 1, view)
        while queue and view.now + least > view.due[queue[0]] + slack:
            yield queue.popleft()
        if not queue:
            del self.queues[model]

    def _run(self, place: int, view: DeploymentView) -> list[Action]:
        """The pass of the nearest latest start on a device that is free."""
        group, now = view.groups[place], view.now
        if group.free[0] > now:
            return []
        there = [model for model in self.queues if group.resident.get(model, math.inf) <= now]
        actions: list[Action] = [Reject(r, HOPELESS) for model in there for r in self._hopeless(model, view)]
        starts = [self._latest_start(model, view) for model in there if model in self.queues]
        if starts:
            *_, model, batch = min(starts)
            queue = self.queues[model]
            actions.append(Run(place, model, tuple(queue.popleft() for _ in range(batch))))
            self.last_use[place][model] = self.busy[place] = now + _seconds(model, batch, view)
            if not queue:
                del self.queues[model]
        return actions

    def _latest_start(self, model: int, view: DeploymentView) -> tuple[float, float, int, int]:
        """When the largest batch in time has to begin, since when it is asked for, model and batch."""
        queue, cost = self.queues[model], view.deployment.models[model].cost
        due, most = view.due[queue[0]], min(len(queue), cost.largest_batch or BATCHES[0])
        fitting = (batch for batch in BATCHES if batch <= most)
        in_time = (b for b in fitting if view.now + _seconds(model, b, view) <= due + ROUNDING)
        batch = next(in_time, 1)
        return due - _seconds(model, batch, view), view.ready[queue[0]], model, batch

    def _load(self, view: DeploymentView) -> list[Action]:
        """A copy for every device whose link is idle: of the model of the highest priority that fits."""
        idle = [place for place, group in enumerate(view.groups) if group.channel_free <= view.now]
        if not idle or not self.queues:
            return []
        actions: list[Action] = []
        work = self._work(view)
        wanted = sorted(
            ((-priority, model) for model, priority in self._priorities(view, work) if priority > 0)
        )
        for _, model in wanted:
            fits = (
                place
                for place in sorted(idle, key=lambda one: (work[one], one))
                if model not in view.groups[place].resident
            )
            for place in fits:
                leaving = self._leaving(place, model, view)
                if leaving is not None:
                    actions += [*(Unload(place, one) for one in leaving), Load(place, model)]
                    for one in leaving:
                        del self.last_use[place][one]
                    self.last_use[place][model] = math.inf
                    idle.remove(place)
                    break
        return actions

    def _work(self, view: DeploymentView) -> list[float]:
        """Seconds that each device has to do, with its part of what waits for the models that it has."""
        work = [max(0.0, end - view.now) for end in self.busy]
        for model in self.queues:
            hosts = [place for place, group in enumerate(view.groups) if model in group.resident]
            for place in hosts:
                work[place] += self._demand(model, view) / len(hosts)
        return work

    def _demand(self, model: int, view: DeploymentView) -> float:
        return len(self.queues[model]) * _seconds(model, 1, view)

    def _priorities(self, view: DeploymentView, work: Sequence[float]) -> Iterator[tuple[int, float]]:
        for model, queue in self.queues.items():
            demand = self._demand(model, view)
            hosts = [place for place, group in enumerate(view.groups) if model in group.resident]
            slack = view.due[queue[0]] - view.now
            within = slack if math.isfinite(slack) else HORIZON
            done = sum(min(1.0, within / work[place]) for place in hosts if work[place] > 0)
            yield model, demand - (demand / len(hosts) * done if hosts else 0.0)

    def _leaving(self, place: int, model: int, view: DeploymentView) -> list[int] | None:
        """Models to give up for another one, least recently used first; ``None`` where that is not enough."""
        group, models = view.groups[place], view.deployment.models
        lacking = group.used[0] + models[model].bytes - view.deployment.cluster.memory
        there = [one for one, ready in group.resident.items() if ready <= view.now]
        unused = [one for one in there if self._is_unused(one, self.last_use[place][one], view)]
        leaving = list[int]()
        for one in sorted(unused, key=lambda one: (one in self.queues, self.last_use[place][one], one)):
            if lacking <= 0:
                break
            leaving.append(one)
            lacking -= models[one].bytes
        return leaving if lacking <= 0 else None

    def _is_unused(self, model: int, end: float, view: DeploymentView) -> bool:
        """Not in a pass; what was copied for somebody who waits stays until it ran."""
        return end <= view.now or (math.isinf(end) and model not in self.queues)


def _seconds(model: int, batch: int, view: DeploymentView) -> float:
    """Of a pass on one device."""
    return math.fsum(view.deployment.models[model].cost.stage_times(batch, 1, 1))
