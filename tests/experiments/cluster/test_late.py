"""A live cluster calls a scheduler a moment later than it asked for: that shall change nothing much."""

from __future__ import annotations

import pytest

from experiments.cluster.simulator import ClusterSimulation, figures
from tests.experiments.cluster.test_invariants import MACHINES, POLICIES, policy
from tests.experiments.cluster.test_laws import TICKS
from tests.experiments.cluster.traces import jobs, suited

LATE = 2e-3
#: Three times what the cluster holds at once, of a minute to ten.
CROWD = [(13.0 * job, 1 + job % 3, 60.0 + 97.0 * (job * 7 % 6)) for job in range(16)]
LIVE = [
    name
    for name in POLICIES
    if "measured" in policy(name).modes and policy(name).rules == "own" and name not in TICKS
]


class Late(ClusterSimulation):
    """Wake-ups come ``LATE``."""

    def _call_again(self, wake_at: float | None, length: float | None) -> None:
        super()._call_again(None if wake_at is None else wake_at + LATE, length)


@pytest.mark.parametrize("name", LIVE)
def test_a_moment_late_is_not_another_schedule(name: str) -> None:
    made = policy(name)
    trace, performance = suited(jobs(*CROWD), made, MACHINES)
    of = [
        figures(run(trace, MACHINES, made, performance).run(), trace, MACHINES)
        for run in (ClusterSimulation, Late)
    ]
    for figure in ("avg_jct", "makespan"):
        assert of[1][figure] == pytest.approx(of[0][figure], rel=0.01), figure
    assert of[1]["preemptions"] == pytest.approx(of[0]["preemptions"], rel=0.2, abs=2)


def test_several_of_them_ask_to_be_called() -> None:
    assert {"gandiva", "tiresias", "elasticflow"} <= set(LIVE)
