"""A live job that is stopped before its first step."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from experiments.cluster.interface import Allocation, ClusterView, Gang
from experiments.cluster.interface.log import COMPLETED, PREEMPTED
from tests.experiments.cluster.test_live import checked, cluster, trace_of

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Hasty:
    """Starts the job, stops it a moment later, and starts it again."""

    def __init__(self) -> None:
        self.stopped = False

    def allocate(self, view: ClusterView) -> Allocation:
        soon = view.now + 0.05
        if 0 in view.waiting:
            return Allocation((Gang(0, (0,)),), wake_at=soon)
        if 0 in view.running and not self.stopped:
            self.stopped = True
            return Allocation(preempt=(0,), wake_at=soon)
        return Allocation()


def test_a_job_that_is_stopped_while_it_starts_gives_its_slot_back_without_a_step(tmp_path: Path) -> None:
    """Its process is importing torch: all the time that it had the slot counts as starting."""
    live, speed = cluster(tmp_path, trace_of((0, 1, 1.0)), "fifo")
    live.decider = Hasty()
    plan = live.run()
    assert checked(live, speed, plan) == [(0, PREEMPTED), (0, COMPLETED)]
    first, second = plan.executions
    assert first.restarting == first.end - first.start and first.work == 0
    assert second.work == live.jobs.steps[0]
    assert plan.facts["losses"] == 0
