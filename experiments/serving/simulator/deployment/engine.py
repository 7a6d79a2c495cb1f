"""The event simulator of deployments: requests arrive, groups carry out passes, weights are copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.core.errors import ImpossiblePlan
from experiments.core.events import EventQueue
from experiments.core.progress import Progress, silent
from experiments.serving.interface.deployment import (
    Action,
    Answer,
    Deployment,
    DeploymentPlan,
    DeploymentView,
    Dispatcher,
    Group,
    Load,
    Placement,
    Regroup,
    Reject,
    Run,
    Unload,
    Wake,
)
from experiments.serving.simulator.deployment.groups import Groups
from experiments.workloads.scenario import ScenarioRequests

#: Order of what happens at the same moment: a request that arrives can join a pass that begins then.
ANSWERED, LOADED, ARRIVED, FREE, WOKEN = range(5)


class _Event(NamedTuple):
    kind: int
    subject: Any = None
    grouping: int = 0


def simulate_deployment(
    deployment: Deployment,
    placement: Placement,
    dispatcher: Dispatcher,
    asked: ScenarioRequests,
    progress: Progress = silent,
) -> DeploymentPlan:
    """Carry out what ``dispatcher`` decides until every request has ended and nothing is under way.

    ``ImpossiblePlan`` names the group or request, and the moment, of what cannot be done. A request that the
    dispatcher never runs nor rejects stays unfinished.
    """
    return DeploymentSimulation(deployment, placement, dispatcher, asked, progress).run()


class DeploymentSimulation:
    """One run: a queue of events, groups of devices, and the dispatcher that is asked at each of them."""

    def __init__(
        self,
        deployment: Deployment,
        placement: Placement,
        dispatcher: Dispatcher,
        asked: ScenarioRequests,
        progress: Progress = silent,
    ) -> None:
        self.deployment, self.dispatcher, self.asked, self.progress = deployment, dispatcher, asked, progress
        self.placement, count = placement, len(asked)
        self.groups = Groups(deployment)
        self.view = DeploymentView(
            deployment, [-1] * count, [math.nan] * count, [math.nan] * count, self.groups.views
        )
        self.answered = [math.nan] * count
        self.rejected = [""] * count
        self.is_taken = [False] * count
        self.grouping, self.groupings = 0, [(0.0, placement.groups)]
        self.events: EventQueue[_Event] = EventQueue()
        self.model: list[int] = asked.model.tolist()
        self.deadline = self._deadlines()
        self.children: dict[int, list[int]] = {}
        for request, parent in enumerate(asked.parent.tolist()):
            if parent >= 0:
                self.children.setdefault(parent, []).append(request)
        self.asks_when_free = type(dispatcher).on_free is not Dispatcher.on_free
        self.ends = 0

    def _deadlines(self) -> list[float]:
        """When each request is to be answered: a query within the objective of its first model."""
        found: list[float] = []
        arrivals, parents = self.asked.arrival.tolist(), self.asked.parent.tolist()
        for model, arrival, parent in zip(self.model, arrivals, parents, strict=True):
            found.append(found[parent] if parent >= 0 else arrival + self.deployment.models[model].slo)
        return found

    def run(self) -> DeploymentPlan:
        self._start()
        does: Mapping[int, Callable[[_Event], Sequence[Action]]] = {
            ANSWERED: self._answer,
            LOADED: self._loaded,
            ARRIVED: self._arrive,
            FREE: self._free,
            WOKEN: lambda event: self.dispatcher.on_time(self.view),
        }
        while self.events:
            self.view.now, event = self.events.pop()
            self._carry_out(does[event.kind](event))
        return self._plan()

    def _start(self) -> None:
        self.groups.form(self.placement.groups, 0.0)
        for place, group in enumerate(self.placement.groups):
            for model in group.models:
                self.groups.settle(place, model, 0.0, 0.0, copied=False)
        for request, arrival in enumerate(self.asked.arrival.tolist()):
            if arrival == arrival:
                self._expect(request, arrival)
        self._carry_out(self.dispatcher.on_start(self.view))

    def _expect(self, request: int, arrival: float) -> None:
        prepared = arrival + self.deployment.models[self.model[request]].preprocess
        self.events.push(prepared, _Event(ARRIVED, request), ARRIVED)

    def _arrive(self, event: _Event) -> Sequence[Action]:
        request: int = event.subject
        model = self.model[request]
        self.view.model[request] = model
        self.view.ready[request] = self.view.now
        self.view.due[request] = self.deadline[request] - self.deployment.models[model].postprocess
        return self.dispatcher.on_arrival(request, self.view)

    def _answer(self, event: _Event) -> Sequence[Action]:
        """Answers of a pass ask the models behind theirs."""
        for request in event.subject:
            self.answered[request] = self.view.now
            self._end_one()
            for child in self.children.get(request, ()):
                self._expect(child, self.view.now)
        return ()

    def _loaded(self, event: _Event) -> Sequence[Action]:
        if event.grouping != self.grouping:
            return ()
        group, model = event.subject
        return self.dispatcher.on_loaded(group, model, self.view)

    def _free(self, event: _Event) -> Sequence[Action]:
        if event.grouping != self.grouping or self.view.groups[event.subject].free[0] > self.view.now:
            return ()
        return self.dispatcher.on_free(event.subject, self.view)

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Run(group, model, requests):
                    self._run(group, model, requests)
                case Reject(request, reason):
                    self._take(request)
                    self.rejected[request] = reason
                    self._end_one()
                case Load(group, model):
                    self._expect_load(group, model, self.groups.load(group, model, self.view.now))
                case Unload(group, model):
                    self.groups.unload(group, model, self.view.now)
                case Wake(time):
                    self.events.push(max(time, self.view.now), _Event(WOKEN), WOKEN)
                case Regroup(groups, is_free):
                    self._regroup(groups, is_free)

    def _expect_load(self, group: int, model: int, ready: float) -> None:
        self.events.push(ready, _Event(LOADED, (group, model), self.grouping), LOADED)

    def _run(self, group: int, model: int, requests: tuple[int, ...]) -> None:
        for request in requests:
            if self.view.model[request] != model:
                raise self._illegal(request, "runs in a pass of another model, or before it arrived")
            self._take(request)
        made = self.groups.run(group, model, requests, self.view.now)
        done = made.leave[-1] + self.deployment.models[model].postprocess
        self.events.push(done, _Event(ANSWERED, requests), ANSWERED)
        if self.asks_when_free:
            self.events.push(made.leave[0], _Event(FREE, group, self.grouping), FREE)

    def _regroup(self, groups: tuple[Group, ...], is_free: bool) -> None:
        self.grouping += 1
        self.groupings.append((self.view.now, groups))
        for group, model, ready in self.groups.regroup(groups, self.view.now, is_free):
            self._expect_load(group, model, ready)
        for place, view in enumerate(self.view.groups):
            self.events.push(view.free[0], _Event(FREE, place, self.grouping), FREE)

    def _take(self, request: int) -> None:
        if self.view.model[request] < 0:
            raise self._illegal(request, "is decided about before it arrived")
        if self.is_taken[request]:
            raise self._illegal(request, "ends twice")
        self.is_taken[request] = True

    def _end_one(self) -> None:
        self.ends += 1
        if self.ends % 1024 == 0:
            self.progress(self.ends / len(self.asked), f"{self.ends:,} of {len(self.asked):,} requests")

    def _illegal(self, request: int, what: str) -> ImpossiblePlan:
        return ImpossiblePlan([f"request {request} at t={self.view.now:g} s: {what}"])

    def _plan(self) -> DeploymentPlan:
        end = max(self.view.now, 0.0)
        self.groups.finish(end)
        rows = zip(self.view.ready, self.view.due, self.answered, self.rejected, strict=True)
        answers = tuple(Answer(request, *row) for request, row in enumerate(rows))
        passes, stays = tuple(self.groups.passes), tuple(self.groups.residences)
        return DeploymentPlan(answers, passes, stays, end, tuple(self.groupings))
