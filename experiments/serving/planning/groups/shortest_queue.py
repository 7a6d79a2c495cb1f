"""Dispatch to the group that is done first; reject at arrival what would be late (AlpaServe, section 4.3).

Requests run first come, first served, one at a time, so that their end is known when they arrive. The group
is the one whose last stage is free first; where the request would be late there, no other is tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.serving.interface.deployment import (
    Action,
    DeploymentView,
    Dispatcher,
    Placement,
    Reject,
    Run,
)

#: Seconds by which an end may be over its objective: sums of the same terms in another order.
ROUNDING = 1e-9


class ShortestQueue(Dispatcher):
    """Gives each request to the hosting group whose last stage is free first; ties to the first group."""

    def __init__(self, placement: Placement, overhead: float = 0.0, stage_overhead: float = 0.0) -> None:
        self.unplaced = placement.unplaced
        self.overhead, self.stage_overhead = overhead, stage_overhead

    def on_arrival(self, request: int, view: DeploymentView) -> Sequence[Action]:
        model = view.model[request]
        hosts = [place for place, group in enumerate(view.groups) if model in group.group.models]
        if not hosts:
            return (Reject(request, self.unplaced.get(model, "no group holds the model")),)
        place = min(hosts, key=lambda one: view.groups[one].free[-1])
        if self._end(place, model, view) > view.due[request] + ROUNDING:
            return (Reject(request, "would be late"),)
        return (Run(place, model, (request,)),)

    def _end(self, place: int, model: int, view: DeploymentView) -> float:
        group = view.groups[place]
        longer = 1 + self.stage_overhead * group.group.pipeline
        time = max(view.now, group.resident.get(model, view.now))
        for free, seconds in zip(
            group.free, group.group.stage_times(view.deployment.models[model]), strict=True
        ):
            time = max(time, free) + seconds * longer
        return time + self.overhead
