"""QSSF: as good as knowing durations where groups fix them, no worse than FIFO where they tell nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import Machines
from experiments.cluster.policies.qssf.history import History, Kind
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs

MACHINES = Machines.of_sizes([4, 4])


def drawn(seed: int, *, telling: bool, count: int = 1200) -> JobTrace:
    """Jobs of 30 scripts of 6 users; a script fixes the duration to 10 %, or says nothing about it."""
    rng = np.random.default_rng(seed)
    typical = np.exp(rng.uniform(np.log(10), np.log(3000), 30))
    script = rng.integers(0, 30, count)
    spread = rng.uniform(0.95, 1.05, count)
    seconds = typical[script if telling else rng.integers(0, 30, count)] * spread
    gpus = rng.choice([1, 1, 1, 2, 4], count)
    load = float((seconds * gpus).sum()) / MACHINES.devices
    submit = np.sort(rng.uniform(0, load / 1.05, count))
    trace = jobs(*zip(submit.tolist(), gpus.tolist(), seconds.tolist(), strict=True))
    users = tuple(f"user {one % 6}" for one in script)
    return replace(trace, traits={"user": users, "name": tuple(f"script {one}" for one in script)})


def mean_time(trace: JobTrace, name: str, **knobs: object) -> float:
    plan = simulate(trace, MACHINES, registry.create("cluster", name, knobs))
    assert faults(plan, trace, MACHINES) == []
    return figures(plan, trace, MACHINES)["avg_jct"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_names_that_fix_durations_are_as_good_as_knowing_them(seed: int) -> None:
    trace = drawn(seed, telling=True)
    assert mean_time(trace, "qssf") <= 1.1 * mean_time(trace, "sjf", key="service")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_names_that_tell_nothing_cost_next_to_nothing(seed: int) -> None:
    trace = drawn(seed, telling=False)
    assert mean_time(trace, "qssf") <= 1.1 * mean_time(trace, "fifo")


def test_only_ended_jobs_teach() -> None:
    """The long script's second job waits behind the short one's as soon as one of each has ended, not before:
    at 0 the first two go by their order, at 110 the short job overtakes.
    """
    trace = jobs((0, 1, 100), (1, 1, 10), (2, 1, 100), (3, 1, 10))
    trace = replace(trace, traits={"user": ("a",) * 4, "name": ("long", "short", "long", "short")})
    plan = simulate(trace, Machines.of_sizes([1]), registry.create("cluster", "qssf", {}))
    order = [execution.gang.job for execution in sorted(plan.executions, key=lambda one: one.start)]
    assert order == [0, 1, 3, 2]


def test_a_group_without_history_is_taken_for_the_next_wider_one() -> None:
    history = History(blend=1.0, first_fit=4)
    assert history.predict(Kind("a", "x", "", 1)) == 1.0
    history.add(Kind("a", "x", "", 1), 10.0)
    history.add(Kind("a", "y", "", 2), 30.0)
    found = [history.predict(Kind(*kind, "", gpus)) for *kind, gpus in (("a", "x", 8), ("a", "z", 2))]
    assert found == [10.0, 30.0]
    assert history.predict(Kind("b", "x", "", 4)) == 20.0


def test_trees_learn_what_the_number_of_gpus_says() -> None:
    history = History(blend=0.0, first_fit=40)
    for number in range(40):
        history.add(Kind(f"user {number % 4}", "x", "", 1 + number % 2), 10.0 if number % 2 else 1000.0)
    assert history.refit() and not history.refit()
    new = [history.predict(Kind("nobody yet", "y", "", gpus)) for gpus in (1, 2)]
    assert new[1] < 20 < 500 < new[0]
