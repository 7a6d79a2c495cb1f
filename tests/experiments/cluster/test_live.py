"""Jobs that really train here, scheduled by the deciders of simulations: preempted, killed, cancelled."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    violations,
)
from experiments.cluster.interface.log import COMPLETED, LOST, PREEMPTED
from experiments.cluster.live import (
    Calibration,
    LiveCluster,
    MeasuredSpeed,
    Slots,
    slots_here,
    training_jobs,
)
from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.run import run
from experiments.workloads.jobs import JobTrace

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CORE = sorted(os.sched_getaffinity(0))[0]


class Idle:
    """Starts nothing."""

    def allocate(self, view: ClusterView) -> Allocation:
        return Allocation()


def trace_of(*rows: tuple[float, int, float]) -> JobTrace:
    """Jobs of (submit, GPUs, service)."""
    count = len(rows)
    submit, gpus, service = (np.array(column) for column in zip(*rows, strict=True))
    return JobTrace(
        name="live",
        job=tuple(f"job-{number}" for number in range(count)),
        submit=submit.astype(float),
        gpus=gpus.astype(np.int64),
        service=service.astype(float),
        deadline=np.full(count, np.nan),
        model=("cnn",) * count,
        tenant=("",) * count,
    )


def cluster(
    folder: Path, trace: JobTrace, policy: str, progress: Any = silent, **knobs: Any
) -> tuple[LiveCluster, MeasuredSpeed]:
    """One slot; steps of 20 ms, which only say how many steps a job has."""
    made = registry.create("cluster", policy, knobs)
    assert isinstance(made, ClusterPolicy)
    calibration = Calibration({("cnn", 1): 0.02}, 3.0, 0.1)
    jobs = training_jobs(trace, lambda model, gpus, share: 0.02 / share)
    speed = MeasuredSpeed(jobs, calibration)
    return LiveCluster(jobs, Slots([CORE]), made, speed, folder, progress=progress), speed


def checked(live: LiveCluster, speed: MeasuredSpeed, plan: ClusterPlan) -> list[tuple[int, str]]:
    """The executions by job and how they ended, of a plan that the checker lets pass."""
    assert violations(plan, live.jobs.trace, live.slots.machines(), speed) == []
    return [(execution.gang.job, execution.ended) for execution in plan.executions]


def test_a_shorter_job_takes_the_slot_and_the_longer_one_goes_on(tmp_path: Path) -> None:
    """The shorter one is submitted once the longer one is seen to train, however long it took to start."""
    trace = trace_of((0, 1, 10), (3600, 1, 0.4))
    live, speed = cluster(tmp_path, trace, "srtf")

    def submit() -> None:
        while 0 not in live.executions.stays or live.executions.stays[0].step == 0:
            time.sleep(0.01)
        trace.submit[1] = live.now

    hand = threading.Thread(target=submit)
    hand.start()
    plan = live.run()
    hand.join()
    assert checked(live, speed, plan) == [(0, PREEMPTED), (1, COMPLETED), (0, COMPLETED)]
    first, _, second = plan.executions
    assert first.work + second.work == live.jobs.steps[0]
    assert 0 < first.work < live.jobs.steps[0]


def test_a_killed_job_starts_again_from_its_last_checkpoint(tmp_path: Path) -> None:
    live, speed = cluster(
        tmp_path,
        trace_of(
            (0, 1, 20),
        ),
        "fifo",
        checkpoint_every=0.2,
    )

    def kill() -> None:
        while 0 not in live.executions.stays or live.executions.stays[0].kept < 20:
            time.sleep(0.01)
        os.kill(live.executions.stays[0].process.ranks[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    plan = live.run()
    killer.join()
    assert checked(live, speed, plan) == [(0, LOST), (0, COMPLETED)]
    lost, again = plan.executions
    assert lost.lost > 0
    assert lost.work >= 20
    assert lost.work + again.work == live.jobs.steps[0]
    assert plan.facts["losses"] == 1


def test_a_job_that_went_on_in_memory_falls_back_to_the_checkpoint_that_there_is(tmp_path: Path) -> None:
    """It was suspended beyond its only checkpoint, went on and was killed: the steps since are lost."""
    live, speed = cluster(tmp_path, trace_of((0, 1, 20)), "fifo")

    def disturb() -> None:
        while 0 not in live.executions.stays or live.executions.stays[0].step < 30:
            time.sleep(0.01)
        live.executions.stays[0].ordered = "pause"
        live.executions.stays[0].process.tell("pause")
        while (
            0 not in live.executions.stays
            or not live.executions.stays[0].resumed
            or live.executions.stays[0].step < 60
        ):
            live.executions.stopped += (
                [0] if 0 in live.executions.paused and not live.executions.stopped else []
            )
            time.sleep(0.01)
        os.kill(live.executions.stays[0].process.ranks[0].pid, signal.SIGKILL)

    hand = threading.Thread(target=disturb)
    hand.start()
    plan = live.run()
    hand.join()
    assert checked(live, speed, plan) == [(0, PREEMPTED), (0, LOST), (0, COMPLETED)]
    paused, lost, again = plan.executions
    assert paused.work >= 30
    assert lost.work == -paused.work
    assert again.work == live.jobs.steps[0]


def test_a_job_that_is_never_started_is_told_as_unfinished(tmp_path: Path) -> None:
    live, _ = cluster(tmp_path, trace_of((0, 1, 1)), "fifo")
    live.decider = Idle()
    assert live.run().unfinished == (0,)


def test_cancelling_leaves_no_process_behind(tmp_path: Path) -> None:
    def cancel(share: float, what: str) -> None:
        if live.executions.stays and live.executions.stays[0].step > 3:
            pids.extend(process.pid for process in live.executions.stays[0].process.ranks)
            raise KeyboardInterrupt

    pids: list[int] = []
    live, _ = cluster(tmp_path, trace_of((0, 1, 1000)), "fifo", progress=cancel)
    with pytest.raises(KeyboardInterrupt):
        live.run()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_more_slots_than_this_host_has_are_infeasible() -> None:
    with pytest.raises(Infeasible, match="slots are asked for and this host has"):
        slots_here(1024)


def test_a_measured_run_stands_beside_what_was_simulated_before_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job,submit,gpus,service,model\na,0,1,2,cnn\nb,1,1,1,resnet\nlarge,1,2,9,cnn\n")
    workload = {"source": str(path), "format": "jobs-csv"}
    knobs = {"slots": 1, "oversized": "drop"}
    spec = {"family": "cluster", "policy": "fifo", "workload": workload, "knobs": knobs}
    done = run(load_spec({**spec, "hardware": "local", "mode": "measured"}))
    assert done.status == "ok", done.reason
    told = done.provenance
    assert told["performance"]["model"] == "measured"
    assert told["performance"]["start_seconds"] > 0
    seen = {name: entry["value"] for name, entry in done.metrics.items()}
    assert seen["jct_error_mean"] == pytest.approx(told["predicted"]["avg_jct"] / seen["avg_jct"] - 1)
    # Jobs fill their service by the steps that were timed: b waits for a, both start once.
    start = told["performance"]["start_seconds"]
    assert told["predicted"]["avg_jct"] == pytest.approx((2 + start + 2 + 2 * start) / 2, rel=0.5)
    assert "jobs of resnet train" in " ".join(told["trace"]["assumed"])
    assert [row[5] for row in done.plan["rows"]] == ["completed", "completed"]
    assert done.plan["rejected"] == ["large"]
