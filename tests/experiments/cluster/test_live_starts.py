"""A live job that is stopped before its first step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from experiments.cluster.interface import Allocation, ClusterView, Gang
from experiments.cluster.interface.log import COMPLETED, PREEMPTED
from tests.experiments.cluster.test_live import checked, cluster, trace_of
from tests.experiments.process_states import becomes

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Hasty:
    """Starts the job, stops it (or ``suspends`` it) before anything was heard of it, and starts it again."""

    def __init__(self, *, suspends: bool = False) -> None:
        self.suspends, self.stopped = suspends, False

    def allocate(self, view: ClusterView) -> Allocation:
        soon = view.now
        if 0 in view.waiting:
            return Allocation((Gang(0, (0,)),), wake_at=soon)
        if 0 in view.running and not self.stopped:
            self.stopped = True
            jobs = ((), (0,)) if self.suspends else ((0,), ())
            return Allocation(preempt=jobs[0], suspend=jobs[1], wake_at=soon)
        return Allocation()


def test_a_job_that_is_stopped_while_it_starts_gives_its_slot_back_without_a_step(tmp_path: Path) -> None:
    """All the time that it had the slot counts as starting."""
    live, speed = cluster(tmp_path, trace_of((0, 1, 1.0)), "fifo")
    live.decider = Hasty()
    plan = live.run()
    assert checked(live, speed, plan) == [(0, PREEMPTED), (0, COMPLETED)]
    first, second = plan.executions
    assert first.restarting == first.end - first.start and first.work == 0
    assert second.work == live.jobs.steps[0]
    assert plan.facts["losses"] == 0


def test_a_job_that_is_suspended_while_it_starts_is_frozen_and_goes_on_starting(tmp_path: Path) -> None:
    live, speed = cluster(tmp_path, trace_of((0, 1, 1.0)), "fifo")
    live.decider = Hasty(suspends=True)
    plan = live.run()
    assert checked(live, speed, plan) == [(0, PREEMPTED), (0, COMPLETED)]
    first, second = plan.executions
    assert first.restarting == first.end - first.start and first.work == 0
    assert 0 < second.restarting < second.end - second.start
    assert second.work == live.jobs.steps[0]
    assert sorted(log.name for log in tmp_path.rglob("log-*.txt")) == ["log-0.txt"], "one process, not two"


def test_a_frozen_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    asked = {"model": "mlp", "seed": 0, "steps": 10**9, "checkpoint_every": None}
    code = (
        "import json, sys, time; from pathlib import Path;"
        "from experiments.cluster.live.gang_process import start;"
        "gang = start(Path(sys.argv[1]), 0, json.loads(sys.argv[2]), [None], [None]);"
        "gang.freeze(); print(gang.ranks[0].pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "job"), json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        frozen = int(parent.stdout.readline())
        assert becomes(frozen, "T")
        parent.kill()
    assert becomes(frozen, "", "Z")
