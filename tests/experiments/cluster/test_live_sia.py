"""Other policies whose live jobs measure themselves: Sia's one type of device, and KungFu's jobs by noise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from experiments.cluster.experiment.measured import calibrate_host  # noqa: E402
from experiments.cluster.experiment.prediction import chooses_batches, with_costs  # noqa: E402
from experiments.cluster.interface import ClusterPlan, ClusterPolicy, violations  # noqa: E402
from experiments.cluster.interface.log import COMPLETED, MOVED  # noqa: E402
from experiments.cluster.live import Calibration, LiveCluster, Slots  # noqa: E402
from experiments.core import registry  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402
from experiments.core.progress import silent  # noqa: E402
from tests.experiments.cluster.test_live_noise import jobs_and_speed  # noqa: E402
from tests.experiments.cluster.traces import jobs  # noqa: E402

pytestmark = pytest.mark.torch
CORE = sorted(os.sched_getaffinity(0))[0]
#: Of the one job (``jobs_and_speed``), whose steps take 20 ms: it is there for many rounds of a second.
SECONDS, INITIAL = 10.0, 32


def policy(name: str, **knobs: Any) -> ClusterPolicy:
    made = registry.create("cluster", name, knobs)
    assert isinstance(made, ClusterPolicy)
    return made


def train_by(made: ClusterPolicy, folder: Path) -> ClusterPlan:
    """One job on this host's two slots, which are one core."""
    training, speed = jobs_and_speed(SECONDS)
    live = LiveCluster(training, Slots([CORE, CORE]), made, speed, folder)
    plan = live.run()
    assert violations(plan, training.trace, live.slots.machines(), speed, rigid=False) == []
    assert plan.facts["losses"] == 0
    assert plan.executions[-1].ended == COMPLETED
    assert sum(one.work for one in plan.executions) == pytest.approx(training.steps[0])
    return plan


@pytest.mark.slow
def test_sia_doubles_the_slots_of_a_job_that_has_measured_itself(tmp_path: Path) -> None:
    """Nothing was measured on two, which are taken to be twice as fast as long as that is so.

    They are not, on one core; what going back would cost lets the job stay.
    """
    plan = train_by(policy("sia", interval=1.0, restart_cost=10.0), tmp_path)
    first, *others = plan.executions
    assert (first.gang.size, first.ended) == (1, MOVED)
    assert 2 in {one.gang.size for one in others}
    assert plan.facts["trained"]["0"]["samples"] > 0


@pytest.mark.slow
def test_a_noisy_job_of_kungfus_doubles_its_slots_and_its_batch(tmp_path: Path) -> None:
    """Its gradients have far more noise than a tenth of their batch; one evaluation is enough."""
    plan = train_by(policy("kungfu_adapt", interval=1.0, evaluations=1, above=0.1, below=0.0), tmp_path)
    gangs = [(one.gang.size, one.gang.batch) for one in plan.executions]
    assert gangs == [(1, 0), (2, 2 * INITIAL)]
    made = plan.facts["trained"]["0"]
    assert made["samples"] > INITIAL * made["steps"]


def test_a_job_of_kungfus_begins_with_all_that_it_asks_for(tmp_path: Path) -> None:
    """Three slots are not there; Sia begins with one."""
    trace = jobs((0, 3, 1))
    with pytest.raises(Infeasible, match="wants 3 GPUs, the cluster has 1: 2 are missing"):
        calibrate_host(trace, policy("kungfu_adapt", slots=1), 0, tmp_path, silent)


def test_jobs_measure_themselves_for_those_who_see_gradients() -> None:
    chosen = {
        name for name in ("pollux", "sia", "kungfu_adapt", "optimus", "las") if chooses_batches(policy(name))
    }
    assert chosen == {"pollux", "sia", "kungfu_adapt"}


def test_whatever_gets_other_slots_is_simulated_to_restart() -> None:
    """KungFu's own resizes cost 5 s; here they go through a checkpoint."""
    knowing = with_costs(policy("kungfu_adapt"), Calibration({}, start=3.0, save=0.5))
    assert (knowing.start_cost, knowing.restart_cost, knowing.resize_cost) == (3.0, 3.5, None)
