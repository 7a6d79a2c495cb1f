"""How a device of Nexus works: its sessions take turns with their batches; what would be late is dropped."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from experiments.serving.interface.deployment import Action, DeploymentView, Dispatcher, Reject, Run
from experiments.serving.policies.nexus.packing import Gpu, Packing, Turn

#: Seconds by which an end may be over its objective, as rounding.
ROUNDING = 1e-9
DROPPED = "dropped: its batch would end too late"


class Turns(Dispatcher):
    """Requests go to the devices of their session in proportion to the rates that these serve.

    A device that is free runs the next session of its cycle that has requests, at most its batch of them: it
    waits for nobody, as the authors' backend does.
    """

    def __init__(self, packing: Packing, devices: int) -> None:
        self.infeasible = packing.infeasible
        self.turn_over(packing.gpus[:devices])

    def turn_over(self, gpus: Sequence[Gpu]) -> None:
        """Begin with these devices, whose queues are empty."""
        self.gpus = tuple(gpus)
        self.queues = [{turn.session.place: deque[int]() for turn in gpu.turns} for gpu in self.gpus]
        self.next_turn = [0] * len(self.gpus)
        self.hosts: dict[int, list[tuple[int, float]]] = {}
        for place, gpu in enumerate(self.gpus):
            for turn in gpu.turns:
                self.hosts.setdefault(turn.session.place, []).append((place, turn.rate))
        self.given = {model: [0] * len(hosts) for model, hosts in self.hosts.items()}

    def on_arrival(self, request: int, view: DeploymentView) -> Sequence[Action]:
        model = view.model[request]
        if model not in self.hosts:
            return (Reject(request, self.infeasible.get(model, "no device is left for the model")),)
        place = self._choose(model)
        self.queues[place][model].append(request)
        return self._work(place, view)

    def on_free(self, group: int, view: DeploymentView) -> Sequence[Action]:
        return self._work(group, view)

    def on_loaded(self, group: int, model: int, view: DeploymentView) -> Sequence[Action]:
        return self._work(group, view)

    def _choose(self, model: int) -> int:
        """The device that is furthest behind its share: weighted round-robin."""
        hosts, given = self.hosts[model], self.given[model]
        chosen = min(range(len(hosts)), key=lambda one: ((given[one] + 1) / hosts[one][1], one))
        given[chosen] += 1
        return hosts[chosen][0]

    def _work(self, place: int, view: DeploymentView) -> list[Action]:
        """Run the next session of the cycle that has requests in time."""
        actions: list[Action] = []
        if view.groups[place].free[0] > view.now:
            return actions
        turns = self.gpus[place].turns
        for step in range(len(turns)):
            at = (self.next_turn[place] + step) % len(turns)
            model = turns[at].session.place
            if view.groups[place].resident.get(model, math.inf) > view.now:
                continue
            queue = self.queues[place][model]
            batch, late = early_drop(turns[at], queue, view)
            actions += [Reject(request, DROPPED) for request in late]
            if batch:
                self.next_turn[place] = (at + 1) % len(turns)
                return [*actions, Run(place, model, batch)]
        return actions


def early_drop(turn: Turn, queue: deque[int], view: DeploymentView) -> tuple[tuple[int, ...], list[int]]:
    """Take a batch from ``queue``, and what cannot be in it in time (Nexus, section 6.3).

    From the head on, a request is dropped that would be late at the end of a batch as large as possible;
    dropping the head alone would leave small batches that are late again. A shorter queue has a shorter pass.
    """
    late: list[int] = []
    while queue:
        size = min(turn.batch, len(queue))
        if view.due[queue[0]] + ROUNDING >= view.now + turn.session.latency(size):
            return tuple(queue.popleft() for _ in range(size)), late
        late.append(queue.popleft())
    return (), late
