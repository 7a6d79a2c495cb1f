"""What no cluster could carry out ends the run at once, and the job and the time are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Gang, Machines
from experiments.cluster.simulator import ClusterSimulation
from experiments.core import registry
from experiments.core.errors import ImpossiblePlan
from tests.experiments.cluster.traces import jobs

#: Job 0 wants 2 GPUs at 0 s for 10 s, job 1 wants 1 at 3 s; the nodes have 2 devices each.
TRACE, MACHINES = jobs((0, 2, 10), (3, 1, 5)), Machines.of_sizes([2, 2])
GOOD = Allocation(start=(Gang(0, (0, 1)),))


@dataclass
class Says:
    """Answers with what it was given, in order."""

    answers: list[Any] = field(default_factory=list)

    def allocate(self, view: ClusterView) -> Allocation:
        return cast(Allocation, self.answers.pop(0))


def start(*devices: int, job: int = 1, share: float = 1.0, memory: float = 1.0) -> Allocation:
    return Allocation(start=(Gang(job, devices, share, memory),))


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        ([start(0)], "job 1 at t=0 s: is started but does not wait"),
        ([start(0, job=7)], "job number 7 at t=0 s: is started but does not wait"),
        ([start(0, job=-1)], "job number -1 at t=0 s: is started but does not wait"),
        ([start(0, 1, job=0), start(1)], "job 1 at t=3 s: is given device 1 of node-0, which is not free"),
        ([start(3, 4, job=0)], "job 0 at t=0 s: is given devices 3 to 4, and there are 0 to 3"),
        ([start(-1, 0, job=0)], "job 0 at t=0 s: is given devices -1 to 0, and there are 0 to 3"),
        ([start(0, job=0)], "job 0 at t=0 s: is started on 1 GPUs and wants 2"),
        (
            [start(0, 0, job=0)],
            "job 0 at t=0 s: is started on devices that are not in ascending order, each once",
        ),
        ([start(job=0)], "job 0 at t=0 s: is started on nothing"),
        (
            [Allocation(start=(Gang(0, (0, 1), readying=(2,)),))],
            "job 0 at t=0 s: is made ready on devices that it does not have",
        ),
        (
            [start(0, 1, job=0, share=0.0)],
            "job 0 at t=0 s: is started with the share 0 of its devices' time",
        ),
        (
            [start(0, 1, job=0, share=1.5)],
            "job 0 at t=0 s: is started with the share 1.5 of its devices' time",
        ),
        (
            [start(0, 1, job=0, memory=0.0)],
            "job 0 at t=0 s: is started with the share 0 of its devices' memory",
        ),
        (
            [start(0, 1, job=0, share=0.5, memory=0.5), start(1, share=0.6, memory=0.5)],
            "job 1 at t=3 s: is given 0.6 of device 1 of node-0 and 0.5 of its memory, "
            "where 0.5 and 0.5 are free",
        ),
        ([Allocation(preempt=(0,))], "job 0 at t=0 s: is preempted but does not run"),
        ([GOOD, Allocation(reject=((0, "never"),))], "job 0 at t=3 s: is rejected but does not wait"),
        (
            [GOOD, Allocation(wake_at=3.0)],
            "policy fifo at t=3 s: asks to be woken at 3 s, which is not after now",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_illegal_allocation_names_job_and_time(answers: Sequence[Allocation], complaint: str) -> None:
    simulation = ClusterSimulation(
        TRACE, MACHINES, cast(ClusterPolicy, registry.create("cluster", "fifo", {}))
    )
    simulation.decider = Says([*answers])
    with pytest.raises(ImpossiblePlan, match=f"^{re.escape(complaint)}$"):
        simulation.run()
