"""``fgd``: the simulator that FGD (ATC'23) was published with, which only fills a cluster.

Pods come one after another, a second apart, and none departs: first those of the trace in an order shuffled
by the seed, then random copies of them until the next would take the demand for GPUs past ``INFLATED`` of the
capacity. The seed shuffles the nodes too: the release writes a random number before each node's name, and its
schedulers break ties by name. A node list sorted by name has alike nodes next to each other, on which pods
without GPUs, whose scores are mostly equal, would gather. A pod that fits nowhere is refused.
``gpu_allocation_ratio`` (allocated over capacity) and ``fragmentation`` (expected fragments over capacity)
are means over all arrivals at which the demand that has come rounds to 100 % of the capacity; where none
does, they are those of the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from experiments.cluster.interface import (
    ClusterPlan,
    ClusterPolicy,
    Demand,
    Execution,
    ExecutionLog,
    Gang,
    Machines,
    Performance,
    VisibleJobs,
)
from experiments.cluster.interface.check import ORDER
from experiments.cluster.interface.log import CUT
from experiments.cluster.planning.fragments.choosers import Chooser
from experiments.cluster.planning.fragments.nodes import WHOLE, FreeNodes
from experiments.cluster.planning.fragments.typical import TypicalDemands
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, silent
from experiments.workloads.jobs import JobTrace

#: Demand for GPUs, over capacity, to which copies of pods fill a workload up.
INFLATED = 1.3
#: Pods in a workload at most: copies of pods that want next to nothing would never fill a cluster.
MOST_PODS = 2_000_000


def simulate(
    trace: JobTrace,
    machines: Machines,
    policy: ClusterPolicy,
    performance: Performance | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> ClusterPlan:
    """Place the pods of ``trace`` and copies of them, and tell how full the cluster is."""
    jobs = VisibleJobs(trace, policy.sees)
    demands = [jobs.demand(job) for job in range(len(trace))]
    rng = np.random.default_rng(seed)
    nodes = FreeNodes(machines, rng.permutation(len(machines)).tolist())
    order = _arrivals(demands, nodes.capacity, rng)
    chooser: Chooser = policy.chooser(nodes, demands, rng)  # type: ignore[attr-defined]
    filling = Filling(nodes, chooser, TypicalDemands(demands, nodes), demands)
    for place, pod in enumerate(order):
        filling.arrive(pod)
        if place % 512 == 0:
            progress(place / len(order), f"{place:,} of {len(order):,} pods")
    return filling.plan(len(order))


def _arrivals(demands: list[Demand], capacity: float, rng: np.random.Generator) -> list[int]:
    """All pods, shuffled, then random ones for as long as their demand for GPUs stays within ``INFLATED``."""
    wanted = [_milli(demand) for demand in demands]
    if not any(wanted):
        raise BadInput("no pod wants a GPU", "the trace", "pods with GPUs under the rules fgd")
    pods: list[int] = rng.permutation(len(demands)).tolist()
    total = sum(wanted)
    while True:
        pod = int(rng.integers(len(demands)))
        total += wanted[pod]
        if total > INFLATED * capacity:
            return pods
        if len(pods) == MOST_PODS:
            raise BadInput(f"more than {MOST_PODS} pods to fill the cluster", "the trace", "larger pods")
        pods.append(pod)


def _milli(demand: Demand) -> float:
    return demand.gpus * demand.share * WHOLE


@dataclass
class Filling:
    """A cluster that fills up: what has come and is allocated, in thousandths of devices."""

    nodes: FreeNodes
    chooser: Chooser
    typical: TypicalDemands
    demands: list[Demand]
    arrived: float = 0.0
    allocated: float = 0.0
    gangs: dict[int, tuple[float, Gang]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    copies: int = 0
    pods: int = 0
    full: list[dict[str, float]] = field(default_factory=list)

    def arrive(self, pod: int) -> None:
        """Place a pod, or a copy of one that came before, and read the figures where they are due."""
        demand, copy = self.demands[pod], pod in self.gangs or pod in self.refused
        self.arrived += _milli(demand)
        found = self.chooser.choose(demand)
        if found is not None:
            gang = self.nodes.gang(pod, demand, *found)
            self.nodes.take(gang)
            self.allocated += _milli(demand)
            if not copy:
                self.gangs[pod] = (float(self.pods), gang)
        elif not copy:
            self.refused[pod] = "fits no node when it comes"
        self.copies += copy
        self.pods += 1
        if round(100 * self.arrived / self.nodes.capacity) == 100:
            self.full.append(self._now())

    def _now(self) -> dict[str, float]:
        capacity = self.nodes.capacity
        return {
            "gpu_allocation_ratio": self.allocated / capacity,
            "fragmentation": self.typical.of_cluster(self.nodes) / capacity,
        }

    def figures(self) -> dict[str, float]:
        """What is allocated and a fragment, over capacity, where demand is as large as that."""
        read = self.full or [self._now()]
        return {name: float(np.mean([one[name] for one in read])) for name in read[0]}

    def plan(self, end: int) -> ClusterPlan:
        """Every pod of the trace that was placed stays to the end; copies are counted."""
        log = ExecutionLog(
            [Execution(gang, start, float(end), 0.0, ended=CUT) for start, gang in self.gangs.values()]
        )
        return ClusterPlan(
            log,
            rejected=tuple(sorted(self.refused)),
            unfinished=tuple(sorted(self.gangs)),
            reasons=self.refused,
            facts={"pods": self.pods, "copies": self.copies, "typical pods": len(self.typical.demands)},
            figures=self.figures(),
            quirks={ORDER: "pods come in a shuffled order, one in a second, whenever they were submitted"},
        )
