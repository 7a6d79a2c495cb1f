"""What no cluster could carry out ends the run at once, and the job and the time are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Gang
from experiments.cluster.simulator import ClusterSimulation
from experiments.core import registry
from experiments.core.errors import ImpossiblePlan
from tests.experiments.cluster.traces import jobs

#: Job 0 wants 2 GPUs at 0 s for 10 s, job 1 wants 1 at 3 s; the nodes have 2 devices each.
TRACE, CAPACITY = jobs((0, 2, 10), (3, 1, 5)), [2, 2]
GOOD = Allocation(start=(Gang(0, ((0, 2),)),))


@dataclass
class Says:
    """Answers with what it was given, in order."""

    answers: list[Any] = field(default_factory=list)

    def allocate(self, view: ClusterView) -> Allocation:
        return cast(Allocation, self.answers.pop(0))


def start(*devices: tuple[int, int], job: int = 1, share: float = 1.0) -> Allocation:
    return Allocation(start=(Gang(job, devices, share),))


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        ([start((0, 1))], "job 1 at t=0 s: is started but does not wait"),
        ([start((0, 1), job=7)], "job number 7 at t=0 s: is started but does not wait"),
        ([start((0, 1), job=-1)], "job number -1 at t=0 s: is started but does not wait"),
        (
            [start((0, 2), job=0), start((0, 1))],
            "job 1 at t=3 s: is given 1 devices on node 0, where 0 of 2 devices are free",
        ),
        ([start((2, 2), job=0)], "job 0 at t=0 s: is given devices on node 2, and the nodes are 0 to 1"),
        ([start((-1, 2), job=0)], "job 0 at t=0 s: is given devices on node -1, and the nodes are 0 to 1"),
        ([start((0, 1), job=0)], "job 0 at t=0 s: is started on 1 GPUs and wants 2"),
        ([start((0, 1), (0, 1), job=0)], "job 0 at t=0 s: is started with one node named twice"),
        ([start(job=0)], "job 0 at t=0 s: is started on 0 devices"),
        (
            [start((0, 3), (1, -1), job=0)],
            "job 0 at t=0 s: is started on 2 devices, some node's count below 1",
        ),
        (
            [start((0, 2), job=0, share=0.0)],
            "job 0 at t=0 s: is started with the share 0 of its devices' time",
        ),
        (
            [start((0, 2), job=0, share=1.5)],
            "job 0 at t=0 s: is started with the share 1.5 of its devices' time",
        ),
        ([Allocation(preempt=(0,))], "job 0 at t=0 s: is preempted but does not run"),
        ([GOOD, Allocation(reject=(0,))], "job 0 at t=3 s: is rejected but does not wait"),
        (
            [GOOD, Allocation(wake_at=3.0)],
            "policy fifo at t=3 s: asks to be woken at 3 s, which is not after now",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_illegal_allocation_names_job_and_time(answers: Sequence[Allocation], complaint: str) -> None:
    simulation = ClusterSimulation(
        TRACE, CAPACITY, cast(ClusterPolicy, registry.create("cluster", "fifo", {}))
    )
    simulation.decider = Says([*answers])
    with pytest.raises(ImpossiblePlan, match=f"^{re.escape(complaint)}$"):
        simulation.run()
