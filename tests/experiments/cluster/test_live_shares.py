"""Live jobs that are held to shares of one slot: the account by hand, and AntMan's two classes on a core."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.cluster.interface import ClusterPolicy, Gang, violations
from experiments.cluster.interface.log import COMPLETED, MOVED
from experiments.cluster.live import (
    Calibration,
    LiveCluster,
    MeasuredSpeed,
    Slots,
    TrainingJobs,
    calibrate_pairs,
    training_jobs,
)
from experiments.cluster.live.pace import MOST_BEHIND, Pace
from experiments.core import registry
from experiments.core.progress import silent
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC, JobTrace
from tests.experiments.cluster.traces import jobs

CORE = sorted(os.sched_getaffinity(0))[0]
STEP = 0.01
USED = 0.6


class Clocks:
    """The host's clock and a process' own."""

    def __init__(self) -> None:
        self.now = self.computed = 100.0

    def pace(self, share: float) -> Pace:
        return Pace(share, lambda: self.now, lambda: self.computed)

    def compute(self, seconds: float) -> None:
        self.now += seconds
        self.computed += seconds


class TestPace:
    def test_what_was_computed_beyond_the_share_is_waited_for(self) -> None:
        """Two seconds at a quarter are eight by the clock, of which two have passed."""
        clocks = Clocks()
        pace = clocks.pace(0.25)
        clocks.compute(2)
        assert pace.debt() == pytest.approx(6)
        clocks.now += 6
        assert pace.debt() == pytest.approx(0)

    def test_another_share_counts_at_once(self) -> None:
        clocks = Clocks()
        pace = clocks.pace(0.25)
        clocks.compute(2)
        pace.debt()
        pace.share = 0.5
        assert pace.debt() == pytest.approx(3)
        pace.share = 1.0
        assert pace.debt() == 0

    def test_a_process_that_was_held_up_catches_up_by_so_much_and_no_more(self) -> None:
        clocks = Clocks()
        pace = clocks.pace(0.5)
        clocks.now += 1000
        assert pace.debt() == 0
        clocks.compute(MOST_BEHIND)
        assert pace.debt() == pytest.approx(0)
        clocks.compute(1)
        assert pace.debt() == pytest.approx(1)


def guest_and_owner(guest: float, guaranteed: float) -> JobTrace:
    """An opportunistic job that could use all of the slot, and a guaranteed one that uses part of it."""
    trace = jobs((0, 1, guest), (0, 1, guaranteed))
    traits = {"class": (OPPORTUNISTIC, GUARANTEED), "utilization": np.array([1.0, USED])}
    return replace(trace, traits=traits, model=("cnn", "cnn"))


def time_jobs(trace: JobTrace) -> tuple[TrainingJobs, MeasuredSpeed]:
    made = training_jobs(trace, lambda model, gpus, share: STEP / share, paced=True)
    return made, MeasuredSpeed(made, Calibration({("cnn", 1): STEP}, 3.0, 0.1), paced=True)


def test_a_job_has_the_steps_and_the_speed_of_the_part_that_it_uses() -> None:
    """A step of 10 ms on a whole slot takes 16.7 ms of a job that uses 0.6 of it: 60 in a second."""
    made, speed = time_jobs(guest_and_owner(1, 1))
    assert made.steps == (100, 60)
    assert speed.rate(1, Gang(1, (0,), 1.0)).speed == pytest.approx(60)
    assert speed.rate(1, Gang(1, (0,), 0.6)).speed == pytest.approx(60)
    assert speed.rate(0, Gang(0, (0,), 0.4), [Gang(1, (0,), 0.6)]).speed == pytest.approx(40)
    assert speed.rate(0, Gang(0, (0,), 1.0)).speed == pytest.approx(100)


@pytest.mark.parametrize("paced", [False, True])
def test_a_step_takes_longer_next_to_another_job_as_the_pair_was_timed(paced: bool) -> None:
    """Half of a slot gives 50 steps of 10 ms, and 40 where the two cost each other a quarter."""
    made = training_jobs(guest_and_owner(1, 1), lambda model, gpus, share: STEP / share)
    calibration = Calibration({("cnn", 1): STEP}, 3.0, 0.1, crowding={("cnn", "cnn"): 1.25})
    speed = MeasuredSpeed(made, calibration, paced=paced)
    half, other = Gang(0, (0,), 0.5), Gang(1, (0,), 0.5)
    assert speed.rate(0, half, [other]).speed == pytest.approx(40)
    assert speed.rate(0, Gang(0, (0,))).speed == pytest.approx(100)
    assert speed.describe()["crowding"] == {"cnn with cnn": 1.25}


def test_a_gang_that_waits_for_messages_is_slowed_only_by_a_share_below_what_it_computes() -> None:
    """It computes for half of a step of 10 ms: 0.7 of its slots leave that as it is, 0.25 make it 20 ms."""
    trace = replace(guest_and_owner(1, 1), gpus=np.array([2, 2]))
    calibration = Calibration({("cnn", 2): STEP}, 3.0, 0.1, computing={("cnn", 2): STEP / 2})
    made = training_jobs(trace, calibration.paced_seconds, paced=True)
    assert made.steps == (100, 100), "0.6 is enough for it"
    speed = MeasuredSpeed(made, calibration, paced=True)
    ample = speed.rate(0, Gang(0, (0, 1), 0.7))
    assert (ample.speed, ample.busy) == pytest.approx((100, 0.5 / 0.7))
    scarce = speed.rate(0, Gang(0, (0, 1), 0.25))
    assert (scarce.speed, scarce.busy) == pytest.approx((50, 1.0))


@pytest.mark.torch
@pytest.mark.slow
def test_a_pair_is_timed_on_one_slot_both_held_to_half_of_it(tmp_path: Path) -> None:
    """What is told is a step's processor time there over that alone: nearly nothing where that is 1,000 s."""
    pytest.importorskip("torch")
    known = Calibration({("cnn", 1): 1000.0}, 3.0, 0.1)
    found = calibrate_pairs(known, ["cnn", "mlp"], Slots([CORE]), tmp_path, 0, capped=True, progress=silent)
    assert list(found.crowding) == [("cnn", "cnn")]
    assert 0 < found.crowding["cnn", "cnn"] < 1e-3
    assert found.crowded_start > 0


@pytest.mark.torch
@pytest.mark.slow
def test_a_guest_is_slowed_where_it_is_until_the_guaranteed_job_has_ended(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made, speed = time_jobs(guest_and_owner(3, 1.5))
    policy = registry.create("cluster", "antman", {})
    assert isinstance(policy, ClusterPolicy)
    seen: list[tuple[int, float, float, float]] = []

    def look(fraction: float, step: str) -> None:
        if stay := live.executions.stays.get(0):
            pid = stay.process.ranks[0].pid
            seen.append((pid, stay.gang.share, live.now, processor_seconds(pid)))

    live = LiveCluster(made, Slots([CORE]), policy, speed, tmp_path, progress=look)
    plan = live.run()
    assert violations(plan, made.trace, live.slots.machines(), speed) == []
    assert [(one.gang.job, one.ended) for one in plan.executions] == [
        (1, COMPLETED),
        (0, MOVED),
        (0, COMPLETED),
    ]
    assert [one.gang.share for one in plan.executions] == pytest.approx([USED, 1 - USED, 1.0])
    assert len({pid for pid, *_ in seen}) == 1, "it was neither stopped nor started again"
    slowed = [(now, used) for _, share, now, used in seen if share < 1]
    (start, before), (end, after) = slowed[0], slowed[-1]
    most = (1 - USED) * (end - start + MOST_BEHIND)
    assert 0 < after - before < most + 0.1


def processor_seconds(pid: int) -> float:
    """What a process has computed, as the kernel counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
