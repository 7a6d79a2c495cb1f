"""Synergy: profiles, tuning by hand and as laws, and how far it is from the bound."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, Gang, Machine, Machines, OnHost, Pool, violations
from experiments.cluster.planning.performance.sensitivity import ResourceSpeed
from experiments.cluster.policies.synergy import relative_speed
from experiments.cluster.policies.synergy.allocation import tune
from experiments.cluster.policies.synergy.bound import bound
from experiments.cluster.policies.synergy.profiling import Profile, Vector, profile
from experiments.cluster.policies.synergy.servers import Servers, equal_part
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds, SpeedGrid
from tests.experiments.cluster.traces import jobs

GB = 1e9


def server(gpus: int = 2, cpus: float = 6.0, memory: float = 100.0, count: int = 1) -> Machines:
    return Machines([Machine(f"n{number}", gpus, "v100", cpus, memory * GB) for number in range(count)])


def by_cpus(*points: tuple[float, float]) -> SpeedGrid:
    """Speeds by processors, whatever the memory."""
    return SpeedGrid(tuple(cpus for cpus, _ in points), (GB,), np.array([[speed] for _, speed in points]))


#: The card: A is at its best with 5 processors, at .7 with 3; B is with 1 or with 3.
A = by_cpus((1, 0.3), (3, 0.7), (5, 1.0))
MODEST, EQUAL = by_cpus((1, 1.0)), by_cpus((1, 0.5), (3, 1.0))


def of_models(trace: JobTrace, **grids: SpeedGrid) -> JobTrace:
    """The jobs train the models in turn, for as many steps as they had seconds."""
    names = list(grids)
    return replace(
        trace,
        model=tuple(names[job % len(names)] for job in range(len(trace))),
        traits={**trace.traits, "iterations": trace.service.copy()},
        profiles=ResourceSpeeds("by hand", grids),
    )


def planned(trace: JobTrace, machines: Machines, **knobs: Any) -> ClusterPlan:
    policy = registry.create("cluster", "synergy", knobs)
    performance = ResourceSpeed(trace, machines, trace.profiles)
    plan = simulate(trace, machines, policy, performance)  # type: ignore[arg-type]
    assert violations(plan, trace, machines, performance) == []
    return plan


def given_at_once(plan: ClusterPlan) -> dict[int, float]:
    """Processors of each job that ends on what it began with."""
    return {
        one.gang.job: sum(host.cpus for host in one.gang.hosts) for one in plan.executions if one.completed
    }


class TestTheCard:
    """One server of 2 GPUs and 6 processors."""

    trace = jobs((0, 1, 100), (0, 1, 100))

    def test_a_job_that_wants_little_leaves_the_rest_to_one_that_wants_much(self) -> None:
        assert given_at_once(planned(of_models(self.trace, a=A, b=MODEST), server())) == {0: 5, 1: 1}

    def test_a_job_gives_way_to_one_that_needs_its_part(self) -> None:
        """Both wait for the round in which a job of two GPUs ends; once B is done A has 5 again."""
        trace = of_models(jobs((0, 2, 10), (1, 1, 100), (1, 1, 100)), first=MODEST, a=A, b=EQUAL)
        plan = planned(trace, server(), round_length=5.0, order="fifo")
        given = [(one.gang.job, one.start, one.gang.hosts[0].cpus) for one in plan.executions if one.gang.job]
        assert sorted(given) == [(1, 10, 3), (1, 110, 5), (2, 10, 3)]

    def test_greedy_leaves_a_gpu_idle_instead(self) -> None:
        plan = planned(of_models(self.trace, a=A, b=EQUAL), server(), allocation="greedy", order="fifo")
        starts = {one.gang.job: one.start for one in plan.executions}
        assert starts == {0: 0, 1: 100}

    def test_equal_parts_are_what_others_would_give(self) -> None:
        plan = planned(of_models(self.trace, a=A, b=MODEST), server(), allocation="equal")
        ends = {one.gang.job: one.end for one in plan.executions}
        assert ends[0] == pytest.approx(100 / 0.7)


class TestProfiling:
    def test_intervals_that_gain_are_halved(self) -> None:
        """Of 1 to 24 processors nothing is measured between 12 and 24, where nothing is gained."""
        points = (
            (1, 0.3),
            (2, 0.66),
            (3, 1),
            (4, 1.25),
            (5, 1.53),
            (6, 1.75),
            (9, 2),
            (12, 2.94),
            (24, 2.94),
        )
        grid = by_cpus(*points)
        found, _ = profiled(grid, Vector(24, 500 * GB), Vector(3, 62.5 * GB))
        assert found.best == Vector(12, GB)
        assert found.points == 12 + 1 + 1

    def test_a_job_as_fast_on_less_wants_no_more(self) -> None:
        found, _ = profiled(MODEST, Vector(24, 500 * GB), Vector(3, 62.5 * GB))
        assert found.best == found.cut == Vector(1, GB)

    def test_memory_is_what_storage_cannot_make_up_for(self) -> None:
        """100 GB of data, 1 GB a step at 1 step/s, storage of .25 GB/s: three quarters have to be cached."""
        grid = replace(
            SpeedGrid((1.0,), (GB, 200 * GB), np.array([[0.2, 1.0]])), dataset=100 * GB, step_bytes=GB
        )
        found, model = profiled(grid, Vector(24, 500 * GB), Vector(3, 10 * GB), storage=0.25 * GB)
        assert found.best.memory == pytest.approx(75 * GB)
        assert found.points == 1
        assert model.speed(0, found.cut.cpus, found.cut.memory) >= model.speed(0, 3, 10 * GB)


def profiled(
    grid: SpeedGrid, whole: Vector, equal: Vector, storage: float = np.inf
) -> tuple[Profile, ResourceSpeed]:
    trace = of_models(jobs((0, 1, 10)), m=grid)
    model = ResourceSpeed(trace, server(8, whole.cpus, whole.memory / GB), trace.profiles)
    return profile(0, model, whole, equal, storage), model


def test_a_gang_is_as_fast_as_its_worst_node() -> None:
    machines = server(2, 6.0, 100.0, count=2)
    trace = of_models(jobs((0, 2, 10)), a=A)
    model = ResourceSpeed(trace, machines, trace.profiles)
    assert model.rate(0, Gang(0, (0, 2))).speed == 0.7
    uneven = Gang(0, (0, 2), hosts=(OnHost(0, 5, GB), OnHost(1, 1, GB)))
    assert model.rate(0, uneven).speed == 0.3
    assert model.rate(0, Gang(0, (0,))).speed == 0.35


axis = st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 12.0]), min_size=1, max_size=5, unique=True)
sizes = st.lists(st.sampled_from([5.0, 20.0, 60.0, 120.0]), min_size=1, max_size=3, unique=True)


@st.composite
def grids(draw: Any) -> SpeedGrid:
    cpus, memory = sorted(draw(axis)), sorted(draw(sizes))
    cells = len(cpus) * len(memory)
    steps = np.array(draw(st.lists(st.floats(0.0, 2.0), min_size=cells, max_size=cells))) + 0.05
    table = steps.reshape(len(cpus), len(memory)).cumsum(axis=0).cumsum(axis=1)
    return SpeedGrid(tuple(cpus), tuple(size * GB for size in memory), table)


def round_of(
    models: list[SpeedGrid], gpus: list[int], machines: Machines, rule: Any = tune
) -> tuple[Servers, ResourceSpeed, Vector, list[int]]:
    """One round: the jobs that there are GPUs for, and what the rule gives them."""
    trace = of_models(
        jobs(*[(0, wanted, 100.0) for wanted in gpus]),
        **{f"m{place}": grid for place, grid in enumerate(models)},
    )
    model, equal, left, chosen = ResourceSpeed(trace, machines, trace.profiles), equal_part(machines), 0, []
    left = machines.devices
    for job, wanted in enumerate(gpus):
        if wanted <= left:
            left -= wanted
            chosen.append(job)
    node = machines[0]
    profiles = {
        job: profile(
            job,
            model,
            Vector(node.cpus / min(gpus[job], node.gpus), node.memory / min(gpus[job], node.gpus)),
            equal,
            np.inf,
        )
        for job in chosen
    }
    servers = Servers.of(Pool(machines))
    rule(chosen, gpus, profiles, servers, {})
    return servers, model, equal, chosen


@settings(max_examples=60, deadline=None)
@given(
    models=st.lists(grids(), min_size=1, max_size=6),
    gpus=st.lists(st.integers(1, 6), min_size=1, max_size=16),
    count=st.integers(1, 3),
)
def test_tuning_runs_all_and_makes_nobody_slower_than_an_equal_part(
    models: list[SpeedGrid], gpus: list[int], count: int
) -> None:
    machines = server(4, 12.0, 240.0, count=count)
    gpus = [min(wanted, machines.devices) for wanted in gpus]
    servers, model, equal, chosen = round_of(models, gpus, machines)
    assert sorted(servers.spread) == chosen
    for job in chosen:
        assert sum(servers.spread[job].values()) == gpus[job]
        each = servers.given[job]
        assert model.speed(job, each.cpus, each.memory) >= 0.999 * model.speed(job, equal.cpus, equal.memory)
    for one in servers.servers.values():
        assert one.gpus >= 0 and one.cpus >= -1e-6 and one.memory >= -1.0


def test_how_far_from_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Over 50 random rounds on 4 servers of the paper: never above it; the gaps are printed."""
    rng, gaps = np.random.default_rng(0), []
    machines = server(8, 24.0, 500.0, count=4)
    whole = Vector(4 * 24.0, 4 * 500 * GB)
    for _ in range(50):
        models = [drawn_grid(rng) for _ in range(9)]
        gpus = rng.choice([1, 1, 1, 2, 4, 8], 40).tolist()
        servers, model, equal, chosen = round_of(models, gpus, machines)
        most = bound(chosen, gpus, model, whole, equal, integer=False)
        assert bound(chosen, gpus, model, whole, equal, integer=True) <= most * (1 + 1e-9)
        gaps.append(1 - relative_speed(servers, model, equal) / most)
    with capsys.disabled():
        sys.stdout.write(f"\nTUNE below the bound: mean {np.mean(gaps):.1%}, largest {max(gaps):.1%}\n")
    assert min(gaps) >= -1e-9


def drawn_grid(rng: np.random.Generator) -> SpeedGrid:
    """Speeds as the paper's models have them: rising up to some processors, and some memory."""
    cpus = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 12.0, 24.0)
    memory = tuple(size * GB for size in (20.83, 62.5, 125.0, 187.5, 250.0))
    enough, needed = rng.choice([1, 1, 3, 4, 6, 9, 12]), rng.choice([20.83, 20.83, 62.5, 125.0]) * GB
    row = np.minimum(np.array(cpus), enough) / 3
    column = np.where(np.array(memory) >= needed, np.inf, row.max() * 0.7)
    return SpeedGrid(cpus, memory, np.minimum.outer(row, column))


def test_tuning_is_faster_than_equal_parts_and_keeps_what_it_says() -> None:
    rng = np.random.default_rng(3)
    rows = [(30.0 * row, int(rng.choice([1, 1, 2, 4])), float(rng.uniform(300, 4000))) for row in range(80)]
    trace = of_models(jobs(*rows), **{f"m{place}": drawn_grid(rng) for place in range(6)})
    machines = server(8, 24.0, 500.0, count=2)
    mean = {
        rule: figures(planned(trace, machines, allocation=rule), trace, machines)["avg_jct"]
        for rule in ("tune", "equal")
    }
    assert mean["tune"] < mean["equal"]
    plan = planned(trace, machines, bounded=True)
    assert plan.facts["solver"] == "HiGHS"
    assert 0 <= plan.facts["gap_mean"] <= plan.facts["gap_max"] < 0.5
