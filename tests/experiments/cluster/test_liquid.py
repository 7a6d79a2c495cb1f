"""Liquid: best fit by network and fit, groups that are bred, and estimates of ended jobs alone."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, Machine, Machines, Pool
from experiments.cluster.policies.liquid.forest import Features, Forest
from experiments.cluster.policies.liquid.grouping import Search, best_fit, fitness, search
from experiments.cluster.policies.liquid.rooms import Rooms, Want
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs

HOW = Search(population=12, generations=25, crossover=0.8, mutation=0.1)


def rooms(*sizes: int, racks: tuple[int, ...] = ()) -> Rooms:
    racks = racks or (0,) * len(sizes)
    machines = Machines(
        Machine(f"n{row}", size, rack=rack) for row, (size, rack) in enumerate(zip(sizes, racks, strict=True))
    )
    return Rooms.of(Pool(machines), 0.5, 0.5)


def want(gpus: int, share: float = 1.0) -> Want:
    return Want(gpus, share, 0.0, 0.0, ())


def planned(trace: JobTrace, machines: Machines, **knobs: Any) -> ClusterPlan:
    plan = simulate(trace, machines, registry.create("cluster", "liquid", knobs))  # type: ignore[arg-type]
    assert faults(plan, trace, machines) == []
    return plan


class TestBestFit:
    def test_the_card(self) -> None:
        """Nodes with 1 and 2 free GPUs: a job of 2 goes to the second, one of 1 after it to the first."""
        left = rooms(1, 2)
        placed = best_fit([0, 1], {0: want(2), 1: want(1)}, left)
        assert placed == {0: (1, 2), 1: (0,)}
        assert best_fit([1], {1: want(1)}, left) == {1: (0,)}

    def test_pairs_of_workers_cost_by_where_they_are(self) -> None:
        left = rooms(2, 2, 2, racks=(0, 0, 1))
        assert left.network((0, 1)) == 0
        assert left.network((0, 2)) == 1
        assert left.network((0, 4)) == 2
        assert left.network((0, 1, 2)) == pytest.approx(2 / 3)
        assert left.score((0, 1), want(2)) == 0
        assert left.score((0,), want(1)) == 0.25

    def test_a_job_that_no_node_holds_stays_in_a_rack(self) -> None:
        left = rooms(2, 2, 2, 2, racks=(0, 1, 1, 0))
        left.take((0,), want(1))
        devices = left.best_fit(want(4))
        assert devices == (2, 3, 4, 5)

    def test_parts_go_to_the_fullest_device(self) -> None:
        left = rooms(2)
        left.take((1,), want(1, 0.5))
        assert left.best_fit(want(1, 0.4)) == (1,)
        assert left.best_fit(want(1, 0.6)) == (0,)
        assert left.best_fit(want(2, 0.5)) == (0, 1)
        assert left.best_fit(want(2, 0.6)) is None


sizes = st.lists(st.integers(1, 4), min_size=2, max_size=5)
windows = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([1.0, 1.0, 0.5, 0.3])), min_size=1, max_size=9
)


@settings(max_examples=25, deadline=None)
@given(sizes=sizes, window=windows, seed=st.integers(0, 99))
def test_breeding_is_never_worse_than_best_fit(
    sizes: list[int], window: list[tuple[int, float]], seed: int
) -> None:
    left = rooms(*sizes, racks=tuple(row % 2 for row in range(len(sizes))))
    wants = {job: want(*row) for job, row in enumerate(window)}
    order = list(wants)
    found = search(order, wants, left, HOW, np.random.default_rng(seed))
    first = best_fit(order, wants, left)
    assert fitness(order, wants, left, found) <= fitness(order, wants, left, first)
    used = np.zeros(len(left.free))
    for job, devices in found.items():
        assert len(set(devices)) == wants[job].gpus
        used[list(devices)] += wants[job].share
    assert (used <= 1 + 1e-9).all()


def test_breeding_mends_what_the_order_of_arrival_spoils() -> None:
    """Jobs of 1, 1, 3, 3 on two nodes of 4: best fit puts the small ones together, one of 3 is divided."""
    left, wants = rooms(4, 4), {0: want(1), 1: want(1), 2: want(3), 3: want(3)}
    first = best_fit(wants, wants, left)
    assert left.machines.by_node(first[0]) == ((0, 1),) and left.machines.by_node(first[1]) == ((0, 1),)
    found = search(list(wants), wants, left, HOW, np.random.default_rng(0))
    assert all(len(left.machines.by_node(devices)) == 1 for devices in found.values())
    assert len(found) == 4
    assert fitness(list(wants), wants, left, found) < fitness(list(wants), wants, left, first)


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_processes_divide_the_breeding_and_change_nothing(processes: int) -> None:
    """Seven children of a generation: two processes have four and three, and one of eight has none."""
    left = rooms(4, 4, 2, 3, racks=(0, 0, 1, 1))
    wants = {job: want(1 + job % 3, (1.0, 0.5, 0.3)[job % 3]) for job in range(12)}
    how = replace(HOW, population=8)
    generator, other = np.random.default_rng(5), np.random.default_rng(5)
    alone = search(list(wants), wants, left, how, generator)
    assert search(list(wants), wants, left, replace(how, processes=processes), other) == alone
    assert generator.random() == other.random()
    assert multiprocessing.active_children() == []


def of_models(trace: JobTrace, used: dict[str, float]) -> JobTrace:
    """The jobs train the models in turn, which use so much of their GPUs."""
    names = list(used)
    model = tuple(names[job % len(names)] for job in range(len(trace)))
    return replace(trace, model=model, traits={"utilization": np.array([used[name] for name in model])})


class TestEstimates:
    def test_trees_learn_what_a_model_uses(self) -> None:
        forest = Forest(first_fit=20)
        constant = Forest(first_fit=2)
        for _ in range(2):
            constant.add(Features(("m",), 0.0, 1), 0.3)
        assert constant.predict(Features(("other",), 0.0, 2)) == pytest.approx(0.3)
        small, large = (Features((f"model {name}",), 0.0, 1) for name in ("small", "large"))
        for number in range(40):
            assert number >= 20 or forest.predict(small) is None
            forest.add(large if number % 2 else small, 0.8 if number % 2 else 0.2)
        assert forest.predict(small) == pytest.approx(0.2, abs=0.05)
        assert forest.predict(large) == pytest.approx(0.8, abs=0.05)

    def test_jobs_share_gpus_once_enough_have_ended(self) -> None:
        """Jobs that use .3 of a GPU: with a tenth on top three run on one, and none is slowed."""
        trace = of_models(jobs(*[(0, 1, 10)] * 24, *[(300, 1, 10)] * 6), {"m": 0.3})
        plan = planned(trace, Machines.of_sizes([2]), first_fit=8)
        later = [one for one in plan.executions if one.gang.job >= 24]
        assert {one.start for one in later} == {300}
        assert all(one.end == pytest.approx(310) for one in later)
        alone = planned(trace, Machines.of_sizes([2]), estimate=False)
        assert len({one.start for one in alone.executions if one.gang.job >= 24}) == 3

    def test_only_jobs_that_have_ended_teach(self) -> None:
        """What running and waiting jobs use may be anything: until they end nothing starts otherwise."""
        trace = of_models(jobs(*[(3 * row, 1, 20) for row in range(40)]), {"a": 0.2, "b": 0.6})
        machines = Machines.of_sizes([2])
        plan = planned(trace, machines, first_fit=4)
        ends = {one.gang.job: one.end for one in plan.executions}
        cut = sorted(ends.values())[12]
        used = trace.traits["utilization"].copy()
        for job, end in ends.items():
            used[job] = used[job] if end <= cut else 0.9 * used[job]
        other = planned(replace(trace, traits={"utilization": used}), machines, first_fit=4)
        before = [
            sorted(
                (one.gang.job, one.start, one.gang.share) for one in one_plan.executions if one.start < cut
            )
            for one_plan in (plan, other)
        ]
        assert before[0] == before[1] != []


def test_a_window_is_placed_at_its_end() -> None:
    trace = jobs((0, 1, 10), (5, 3, 10), (20, 1, 10), (90, 1, 10))
    plan = planned(trace, Machines.of_sizes([4, 4]), mode="batch", window=30.0, population=6, generations=4)
    assert {one.gang.job: one.start for one in plan.executions} == {0: 30, 1: 30, 2: 30, 3: 120}


def test_batches_come_through_failures_and_give_the_same_each_time() -> None:
    rng = np.random.default_rng(0)
    trace = jobs(*[(5.0 * row, int(rng.integers(1, 5)), float(rng.uniform(5, 60))) for row in range(40)])
    machines = Machines.of_sizes([4, 2, 4])
    knobs = {"mode": "batch", "window": 10.0, "population": 6, "generations": 4, "node_mtbf": 400.0}
    plan, again = (planned(trace, machines, **knobs, node_repair=20.0) for _ in range(2))
    assert plan == again == planned(trace, machines, **knobs, node_repair=20.0, processes=2)
    assert figures(plan, trace, machines)["unfinished_jobs"] == 0
