"""Selective replication: whole models on single devices, popular ones on several (AlpaServe's main baseline).

Every device is a group of its own; which models it holds is searched on a sample of the load. ``greedy``
gives the model with the most unserved requests a replica on the least loaded device; ``beam`` tries every
replica and keeps the three best placements; ``program`` serves as many requests a second as an integer
program over mean rates can (``choose_replicas``), without simulating any; ``uniform`` puts models i, i + 1,
... on device i, as many as fit. Requests go to the device that is free first, and are rejected at arrival
where they would be late. The sample is another draw of the same load, unless ``sample`` says that it is the
trace itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.serving.interface.deployment import (
    Deployment,
    DeploymentPolicy,
    Dispatcher,
    Group,
    Placement,
)
from experiments.serving.planning.groups.evaluator import Evaluator
from experiments.serving.planning.groups.replicas import ReplicaSearch, list_unplaced, with_model
from experiments.serving.planning.groups.shortest_queue import ShortestQueue
from experiments.serving.policies.selective_replication.program import choose_replicas
from experiments.workloads.scenario import ScenarioRequests


@dataclass(frozen=True)
class SelectiveReplication(DeploymentPolicy):
    """Whole models on single devices; those that are asked most get replicas."""

    name: ClassVar[str] = "selective_replication"
    effort: ClassVar[str] = SECONDS

    search: str = knob("greedy", "how replicas are chosen", choices=("greedy", "beam", "program", "uniform"))
    sample: str = knob(
        "another draw", "requests that replicas are chosen by", choices=("another draw", "the trace")
    )

    @property
    def sees_trace(self) -> bool:
        return self.sample == "the trace"

    def place(self, deployment: Deployment, sample: ScenarioRequests) -> Placement:
        groups = tuple(Group((device,)) for device in range(deployment.cluster.devices))
        search = ReplicaSearch(deployment, Evaluator(deployment, sample))
        if self.search == "uniform":
            groups = _round_robin(search, groups)
        elif self.search == "program":
            groups = _fill_devices(search, groups, choose_replicas(deployment))
        else:
            groups = (search.beam if self.search == "beam" else search.fast_greedy)(groups).groups
        return Placement(groups, list_unplaced(deployment, groups))

    def dispatch(self, deployment: Deployment, placement: Placement, sample: ScenarioRequests) -> Dispatcher:
        return ShortestQueue(placement)


def _fill_devices(
    search: ReplicaSearch, groups: Sequence[Group], models: Sequence[Sequence[int]]
) -> tuple[Group, ...]:
    """Give each device its models; what is over its memory by a solver's tolerance is left out."""
    filled = tuple(groups)
    for place, chosen in enumerate(models):
        for model in chosen:
            if search.fits(filled[place], model):
                filled = with_model(filled, place, model)
    return filled


def _round_robin(search: ReplicaSearch, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Device i takes models i, i + 1, ... as long as they fit."""
    models, filled = len(search.deployment.models), tuple(groups)
    for place in range(len(groups)):
        for model in ((place + step) % models for step in range(models)):
            if not search.fits(filled[place], model):
                break
            filled = with_model(filled, place, model)
    return filled
