"""AlpaServe: models share groups of devices in pipelines, so that a burst of one uses the devices of all.

The paper's steps: a model is cut into the stages whose slowest is fastest (``interface/deployment``); for
every shape of groups, all devices are divided into such groups and models are replicated on them; the shape
that attains most on a sample is kept. ``buckets`` also tries devices of their own for models of
similar latency. Requests go to the group that is free first and are rejected at arrival where they would be
late.

Open in the paper, chosen here: the sample is another draw of the same load, unless ``sample`` says that it is
the trace itself; ties go to the lower group; single devices are among the shapes, so that on the sample it is
never below ``selective_replication``. ``overhead`` and ``stage_overhead`` are what the authors' code adds to
a pass before it compares it with the objective; they are 0 unless ``preset`` is ``artifact`` (11 ms, 0.9 % a
stage), and passes in the simulator do not take them. Left out: batches of several requests, and the integer
program over capabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.core.processes import map_in_processes, search_processes
from experiments.serving.interface.deployment import (
    Deployment,
    DeploymentPolicy,
    Dispatcher,
    Group,
    Placement,
)
from experiments.serving.planning.groups.evaluator import Evaluator
from experiments.serving.planning.groups.replicas import Replicas, ReplicaSearch, list_unplaced
from experiments.serving.planning.groups.shortest_queue import ShortestQueue
from experiments.serving.policies.alpaserve.buckets import divide_devices, list_buckets
from experiments.serving.policies.alpaserve.group_shapes import partition, shapes_of
from experiments.workloads.scenario import ScenarioRequests

ARTIFACT_OVERHEAD, ARTIFACT_STAGE_OVERHEAD = 0.011, 0.009


@dataclass(frozen=True)
class AlpaServe(DeploymentPolicy):
    """Groups of devices with model parallelism, shared by several models; replicas by attainment."""

    name: ClassVar[str] = "alpaserve"
    effort: ClassVar[str] = SECONDS

    search: str = knob("fast greedy", "how replicas are chosen", choices=("fast greedy", "beam"))
    buckets: bool = knob(True, "also try devices of their own for models of similar latency")
    sample: str = knob(
        "another draw", "requests that models are placed by", choices=("another draw", "the trace")
    )
    preset: str = knob("none", "constants of the authors' release", choices=("none", "artifact"))
    overhead: float = knob(0.0, "added to a pass before it is compared", low=0.0, high=1e3, unit="s")
    stage_overhead: float = knob(0.0, "share that each stage adds to a pass", low=0.0, high=10.0)
    processes: int = search_processes()

    @property
    def sees_trace(self) -> bool:
        return self.sample == "the trace"

    @property
    def overheads(self) -> tuple[float, float]:
        """Return what is added to a pass (s), and by each stage (share)."""
        if self.preset == "artifact":
            return ARTIFACT_OVERHEAD, ARTIFACT_STAGE_OVERHEAD
        return self.overhead, self.stage_overhead

    def place(self, deployment: Deployment, sample: ScenarioRequests) -> Placement:
        evaluator = Evaluator(deployment, sample, *self.overheads)
        search = ReplicaSearch(deployment, evaluator)
        found = max(self._candidates(search), key=lambda one: one.score)
        plan = {"attainment_on_sample": found.evaluation.attainment}
        return Placement(found.groups, list_unplaced(deployment, found.groups), plan)

    def dispatch(self, deployment: Deployment, placement: Placement, sample: ScenarioRequests) -> Dispatcher:
        return ShortestQueue(placement, *self.overheads)

    def _candidates(self, search: ReplicaSearch) -> Iterator[Replicas]:
        """The best replicas of every shape on all devices, and those of the buckets, each on its own."""
        rooms = [(search, 0, search.deployment.cluster.devices), *self._buckets(search)]
        shapes = [shapes_of(search.deployment.cluster, count) for _, _, count in rooms]
        tasks = [
            (alone, partition(first, count, *shape))
            for (alone, first, count), own in zip(rooms, shapes, strict=True)
            for shape in own
        ]
        filled = iter(map_in_processes(lambda task: self._fill(*task), tasks, self.processes))
        everywhere, *in_buckets = [list(islice(filled, len(own))) for own in shapes]
        yield from everywhere
        if in_buckets:
            best = [max(found, key=lambda one: one.score).groups for found in in_buckets]
            groups = tuple(chain.from_iterable(best))
            yield Replicas(groups, search.evaluator.evaluate(groups))

    def _buckets(self, search: ReplicaSearch) -> Iterator[tuple[ReplicaSearch, int, int]]:
        """The search among each bucket's models, its first device and its number of devices."""
        buckets = list_buckets(search.deployment) if self.buckets else []
        devices = divide_devices(search.deployment, buckets) if len(buckets) > 1 else None
        first = 0
        for models, count in zip(buckets, devices, strict=True) if devices is not None else ():
            yield search.among(models), first, count
            first += count

    def _fill(self, search: ReplicaSearch, groups: tuple[Group, ...]) -> Replicas:
        return search.beam(groups) if self.search == "beam" else search.fast_greedy(groups)
