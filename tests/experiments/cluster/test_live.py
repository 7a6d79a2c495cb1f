"""Jobs that really train here: stopped, resumed, resized, killed, and scheduled by the same deciders."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.cluster.interface import (  # noqa: E402
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    violations,
)
from experiments.cluster.interface.log import COMPLETED, LOST, PREEMPTED  # noqa: E402
from experiments.cluster.live import (  # noqa: E402
    Calibration,
    LiveCluster,
    MeasuredSpeed,
    Slots,
    slots_here,
    training_jobs,
)
from experiments.cluster.live.gang_process import GangProcess, start  # noqa: E402
from experiments.core import registry  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402
from experiments.core.progress import silent  # noqa: E402
from experiments.core.spec import load_spec  # noqa: E402
from experiments.run import run  # noqa: E402
from experiments.workloads.jobs import JobTrace  # noqa: E402
from tests.variants import variants  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
STEPS = 120
CORE = sorted(os.sched_getaffinity(0))[0]


@pytest.fixture
def gangs() -> Iterator[list[GangProcess]]:
    found: list[GangProcess] = []
    yield found
    for gang in found:
        gang.end()


def train(gangs: list[GangProcess], folder: Path, ranks: int = 1, number: int = 0, steps: int = STEPS) -> Any:
    """The ``number``-th stay of a job with its state in ``folder``."""
    training = {"model": "cnn", "seed": 3, "steps": steps, "checkpoint_every": None}
    gangs.append(start(folder, number, training, [CORE] * ranks, [None] * ranks))
    return gangs[-1]


def hear(gang: GangProcess, awaited: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    with selectors.DefaultSelector() as selector:
        selector.register(gang.output, selectors.EVENT_READ)
        while time.monotonic() < until:
            selector.select(1.0)
            for said in gang.hear():
                if said["said"] == awaited:
                    return said
                assert said["said"] != "gone", gang.last_words()
    raise AssertionError(f"{awaited} was not said")


def state(folder: Path) -> dict[str, Any]:
    kept: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True)
    return kept


def largest_difference(one: Any, other: Any) -> float:
    if isinstance(one, torch.Tensor):
        return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return max((largest_difference(value, other[key]) for key, value in one.items()), default=0.0)
    if isinstance(one, list):
        return max((largest_difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else float("inf")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    gang = train([], folder)
    hear(gang, "done")
    gang.end()
    return folder


@pytest.mark.parametrize("times", variants(2, 5))
def test_a_job_that_is_preempted_ends_as_if_nobody_had_touched_it(
    tmp_path: Path, undisturbed: Path, gangs: list[GangProcess], times: int
) -> None:
    reached = []
    for number in range(times):
        gang = train(gangs, tmp_path, number=number)
        hear(gang, "begun")
        hear(gang, "step")
        gang.tell("stop")
        reached.append(hear(gang, "stopped")["step"])
    assert sorted(set(reached)) == reached
    assert reached[-1] < STEPS
    last = train(gangs, tmp_path, number=times)
    assert hear(last, "begun")["step"] == reached[-1]
    assert hear(last, "done")["step"] == STEPS
    assert largest_difference(state(tmp_path), state(undisturbed)) == 0.0


def test_a_job_that_waits_in_memory_goes_on_where_it_was(
    tmp_path: Path, undisturbed: Path, gangs: list[GangProcess]
) -> None:
    gang = train(gangs, tmp_path)
    hear(gang, "begun")
    gang.tell("pause")
    at = hear(gang, "paused")["step"]
    time.sleep(0.3)
    gang.tell("go")
    assert hear(gang, "begun")["step"] == at
    hear(gang, "done")
    assert largest_difference(state(tmp_path), state(undisturbed)) == 0.0


def test_a_job_on_two_slots_and_then_on_one_learns_the_same(
    tmp_path: Path, undisturbed: Path, gangs: list[GangProcess]
) -> None:
    both = train(gangs, tmp_path, ranks=2)
    hear(both, "begun")
    hear(both, "step")
    both.tell("stop")
    reached = hear(both, "stopped")["step"]
    assert 0 < reached < STEPS
    alone = train(gangs, tmp_path, number=1)
    assert hear(alone, "begun")["step"] == reached
    hear(alone, "done")
    found, wanted = state(tmp_path), state(undisturbed)
    assert torch.equal(found["random"], wanted["random"])
    assert largest_difference(found["model"], wanted["model"]) < 1e-6


def test_a_process_ends_with_whoever_started_it(tmp_path: Path, gangs: list[GangProcess]) -> None:
    gang = train(gangs, tmp_path, steps=10**9)
    hear(gang, "begun")
    entry = gang.ranks[0].stdin
    assert entry is not None
    entry.close()
    assert gang.ranks[0].wait(30) == 1


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
    jobs = training_jobs(trace, lambda model, gpus: 0.02)
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
    assert abs(seen["jct_error_mean"]) < 1.0
    assert "jobs of resnet train" in " ".join(told["trace"]["assumed"])
    assert [row[5] for row in done.plan["rows"]] == ["completed", "completed"]
    assert done.plan["rejected"] == ["large"]
