"""Hare: rounds of gradient tasks on a fast and a slow GPU, and plans next to the best there are."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import ClusterPlan, Gang, Machine, Machines, violations
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.hare.plan import DeviceLine, JobTasks, plan_tasks, weighted_completion
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.gradient_tasks import GradientTasks, TaskTimes
from tests.experiments.cluster.traces import jobs

UNLIKE = Machines([Machine("a", 1, "fast"), Machine("b", 1, "slow")])


def rounds(*of: tuple[float, str, int]) -> JobTrace:
    """Jobs from submission, model and rounds; a task takes 1 s on the fast GPU and 3 s on the slow one."""
    seconds = {"fast": 1.0, "slow": 3.0}
    models = {"four": TaskTimes(4, 0.0, seconds), "one": TaskTimes(1, 2.0, seconds)}
    return replace(
        jobs(*[(submit, 1, 1) for submit, _, _ in of]),
        model=tuple(model for _, model, _ in of),
        traits={"iterations": np.array([float(count) for _, _, count in of])},
        profiles=GradientTasks("by hand", models),
    )


def planned(trace: JobTrace, policy: str = "hare", **knobs: float) -> ClusterPlan:
    performance, made = performance_of(trace, UNLIKE), registry.create("cluster", policy, knobs)
    plan = simulate(trace, UNLIKE, made, performance)  # type: ignore[arg-type]
    assert violations(plan, trace, UNLIKE, performance, rigid=False) == []
    return plan


def ends(plan: ClusterPlan) -> dict[int, float]:
    return {one.gang.job: one.end for one in plan.executions if one.completed}


def test_the_fast_gpu_does_three_tasks_of_a_round_while_the_slow_one_does_the_fourth() -> None:
    """Card 24: rounds end at 3 and 6 s."""
    assert ends(planned(rounds((0, "four", 1)))) == {0: 3}
    assert ends(planned(rounds((0, "four", 2)))) == {0: 6}


def test_a_gang_without_relaxed_synchronisation_would_need_twice_as_long() -> None:
    """Two tasks on each GPU take the slow one 6 s; by the model a gang of both needs 3 s a round."""
    model = performance_of(rounds((0, "four", 2)), UNLIKE)
    assert model.work(0) / model.rate(0, Gang(0, (0, 1))).speed == 6
    assert model.work(0) / model.rate(0, Gang(0, (1,))).speed == 24


def test_while_one_job_synchronises_another_runs() -> None:
    """A's two rounds are at 0-1 and 3-4 on the fast GPU, with 2 s between them; B comes and goes in these."""
    plan = planned(rounds((0, "one", 2), (0.5, "one", 1)))
    assert [(one.gang.job, one.gang.devices, one.start, one.end) for one in plan.executions] == [
        (0, (0,), 0, 1),
        (1, (0,), 1, 2),
        (0, (0,), 3, 4),
    ]


def test_switching_jobs_costs_time_on_the_gpu() -> None:
    free = ends(planned(rounds((0, "four", 1), (0, "four", 1))))
    costly = ends(planned(rounds((0, "four", 1), (0, "four", 1)), switch_cost=0.5))
    assert max(costly.values()) > max(free.values())


def test_where_starts_cost_something_jobs_keep_their_gpus() -> None:
    plan = planned(rounds((0, "four", 3), (1, "four", 1)), start_cost=0.25)
    assert len(plan.executions) == 2


def test_a_model_that_the_side_file_lacks_names_job_and_model() -> None:
    with pytest.raises(BadInput, match="job 1: tasks has no model 'five'"):
        performance_of(rounds((0, "four", 1), (0, "five", 1)), UNLIKE)


class BestPlan:
    """The least sum of completion times, by trying every order of tasks on every GPU."""

    def __init__(self, cast: Sequence[JobTasks], devices: int) -> None:
        self.cast, self.best = cast, math.inf
        state = [(job.left, 0.0, 0.0) for job in cast]
        self._try(state, [0.0] * devices)

    def _try(self, state: list[tuple[int, float, float]], free: list[float]) -> None:
        """Of each job: tasks left, when its next may begin, and when those of its round end."""
        if sum(end for _, _, end in state) >= self.best:
            return
        if not any(left for left, _, _ in state):
            self.best = sum(end for _, _, end in state)
            return
        for place, (left, release, round_end) in enumerate(state):
            if not left:
                continue
            job = self.cast[place]
            for device, since in enumerate(free):
                end = max(release, since) + job.seconds[device]
                ends = max(round_end, end)
                done = (left - 1) % job.per_round == 0
                after = (left - 1, ends + job.sync, ends) if done else (left - 1, release, ends)
                self._try(
                    [*state[:place], after, *state[place + 1 :]], [*free[:device], end, *free[device + 1 :]]
                )


def cast_of(rng: np.random.Generator, devices: int) -> list[JobTasks]:
    """Jobs with six tasks in all, or less."""
    shapes = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (1, 3)]
    cast: list[JobTasks] = []
    while True:
        per_round, count = shapes[rng.integers(len(shapes))]
        if sum(job.left for job in cast) + per_round * count > 6:
            return cast
        seconds = [float(value) for value in rng.integers(1, 6, devices)]
        sync = float(rng.integers(0, 2))
        cast.append(JobTasks(len(cast), per_round * count, per_round, sync, seconds))


def test_no_plan_is_worse_than_twice_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    rng, gaps = np.random.default_rng(3), []
    for case in range(60):
        devices = 2 + case % 2
        cast = cast_of(rng, devices)
        plan = plan_tasks(cast, lambda devices=devices: [DeviceLine(0.0) for _ in range(devices)], 0.0)
        ours = weighted_completion(plan, {job.job: 1.0 for job in cast})
        gaps.append(ours / BestPlan(cast, devices).best)
    with capsys.disabled():
        sys.stdout.write(
            f"\nhare: {np.mean(gaps) - 1:.1%} above the best plan on average, at most {max(gaps) - 1:.1%}\n"
        )
    assert min(gaps) >= 1 - 1e-9
    assert max(gaps) <= 2
