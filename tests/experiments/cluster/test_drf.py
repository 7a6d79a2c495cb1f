"""Dominant resource fairness: the paper's example by hand, and what the paper proves of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import Allocation, ClusterPlan, ClusterView, Machine, Machines
from experiments.cluster.policies.drf import Claim
from experiments.cluster.simulator import ClusterSimulation, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs

GB = 10**9
#: Processors and memory of one task, the parts of one host.
Task = tuple[float, float]


def tasks_of(*tenants: tuple[Task, int], weights: tuple[float, ...] = (), later: float = 0.0) -> JobTrace:
    """So many equal tasks of each tenant, in turns; all at 0 s, or each ``later`` than the one before it."""
    most = max(count for _, count in tenants)
    rows = [
        (who, tenants[who][0])
        for task in range(most)
        for who in range(len(tenants))
        if task < tenants[who][1]
    ]
    trace = jobs(*[(place * later, 0, 100.0) for place in range(len(rows))])
    traits: dict[str, Any] = {
        "cpu": np.array([task[0] for _, task in rows]),
        "memory": np.array([task[1] * GB for _, task in rows]),
    }
    if weights:
        traits["weight"] = np.array([weights[who] for who, _ in rows])
    return replace(trace, tenant=tuple("ABCDEF"[who] for who, _ in rows), traits=traits)


def host(cpus: float, memory: float) -> Machines:
    return Machines([Machine("host", 0, cpus=cpus, memory=memory * GB)])


def planned(trace: JobTrace, machines: Machines, **knobs: Any) -> ClusterPlan:
    plan = simulate(trace, machines, registry.create("cluster", "drf", knobs))  # type: ignore[arg-type]
    assert faults(plan, trace, machines) == []
    return plan


def counts_at(plan: ClusterPlan, trace: JobTrace, time: float) -> dict[str, int]:
    """Tasks of each tenant that run then."""
    found = dict.fromkeys(sorted(set(trace.tenant)), 0)
    for one in plan.executions:
        if one.start <= time < one.end:
            found[trace.tenant[one.gang.job]] += 1
    return found


def test_the_example_of_the_paper() -> None:
    """9 processors and 18 GB; A's tasks take (1, 4), B's (3, 1): A has 3, B has 2, both two thirds of what
    they have most of.
    """
    trace = tasks_of(((1, 4), 9), ((3, 1), 9))
    assert counts_at(planned(trace, host(9, 18)), trace, 0) == {"A": 3, "B": 2}
    assert 3 * 4 / 18 == 2 * 3 / 9 == pytest.approx(2 / 3)


def test_a_tenant_of_twice_the_weight_has_twice_as_much() -> None:
    trace = tasks_of(((1, 1), 20), ((1, 1), 20), weights=(2.0, 1.0))
    assert counts_at(planned(trace, host(9, 9)), trace, 0) == {"A": 6, "B": 3}


def test_gpus_count_as_processors_do() -> None:
    """B's jobs take 4 of 8 GPUs, A's one each: after one of B four of A are its equal."""
    trace = replace(jobs(*[(0, 1, 9)] * 6, *[(0, 4, 9)] * 3), tenant=("A",) * 6 + ("B",) * 3)
    assert counts_at(planned(trace, Machines.of_sizes([8])), trace, 0) == {"A": 4, "B": 1}


def test_without_tenants_jobs_go_by_submission_and_those_that_do_not_fit_are_skipped() -> None:
    trace = jobs((0, 3, 9), (1, 4, 9), (2, 1, 9))
    starts = {one.gang.job: one.start for one in planned(trace, Machines.of_sizes([4])).executions}
    assert starts == {0: 0, 1: 11, 2: 2}


def test_what_a_tenant_took_while_it_was_alone_is_kept_or_given_back_at_the_end_of_a_round() -> None:
    trace = replace(jobs(*[(0, 1, 50)] * 4, *[(1, 1, 50)] * 2), tenant=("A",) * 4 + ("B",) * 2)
    kept, given = (planned(trace, Machines.of_sizes([4]), round_length=length) for length in (None, 10.0))
    assert counts_at(kept, trace, 20) == {"A": 4, "B": 0}
    assert counts_at(given, trace, 20) == {"A": 2, "B": 2}


#: Tasks of a hundredth to a twentieth of a host of (100, 100).
amounts = st.floats(1.0, 5.0)
demands = st.tuples(amounts, amounts)
WHOLE = 100.0


def given_to(tasks: list[Task]) -> list[int]:
    """Tasks of each tenant that start at once, when each has more than fit."""
    plenty = [(task, int(WHOLE / max(task)) + 1) for task in tasks]
    trace = tasks_of(*plenty)
    found = counts_at(planned(trace, host(WHOLE, WHOLE)), trace, 0)
    return list(found.values())


def fits_in(bundle: Task, task: Task) -> float:
    """How many of ``task`` (in parts) could run on a bundle of both resources."""
    return min(have / need for have, need in zip(bundle, task, strict=True))


def largest(task: Task) -> float:
    return max(task) / WHOLE


several = st.lists(demands, min_size=2, max_size=4)


@settings(max_examples=20, deadline=None)
@given(tasks=several)
def test_nobody_would_rather_have_what_another_has(tasks: list[Task]) -> None:
    """Envy-freeness (section 3) up to one task of each of the two; and a share of one over their number, up
    to the last tasks that did not fit.
    """
    counts = given_to(tasks)
    slack = sum(map(largest, tasks))
    for mine, count in zip(tasks, counts, strict=True):
        assert count * largest(mine) >= 1 / len(tasks) - slack
        for theirs, others in zip(tasks, counts, strict=True):
            bundle = (theirs[0] * others, theirs[1] * others)
            envied = fits_in(bundle, mine)
            assert envied <= count + 1 + largest(theirs) / largest(mine) + 1e-6


@settings(max_examples=20, deadline=None)
@given(tasks=several)
def test_nothing_is_left_that_somebody_could_use(tasks: list[Task]) -> None:
    """Pareto efficiency: after the filling no tenant's next task fits."""
    counts = given_to(tasks)
    left = tuple(
        WHOLE - sum(task[r] * count for task, count in zip(tasks, counts, strict=True)) for r in (0, 1)
    )
    for task in tasks:
        assert task[0] > left[0] - 1e-6 or task[1] > left[1] - 1e-6


@settings(max_examples=20, deadline=None)
@given(tasks=several, false=demands)
def test_asking_for_something_else_than_is_needed_gains_nothing(tasks: list[Task], false: Task) -> None:
    """Strategy-proofness, up to what one task of everybody makes: useful tasks on what a liar is given."""
    honest, *others = tasks
    truly = given_to([honest, *others])[0]
    count = given_to([false, *others])[0]
    useful = fits_in((false[0] * count, false[1] * count), honest)
    slack = sum(largest(task) for task in [false, *tasks]) / largest(honest) + 1
    assert useful <= truly + slack


def test_a_tenant_alone_has_everything() -> None:
    assert given_to([(1.0, 2.0)]) == [50]


rows = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8), st.integers(1, 40)), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(rows=rows, seed=st.integers(0, 99), placement=st.sampled_from(["count", "pack", "consolidate"]))
def test_books_agree_with_what_runs_and_waits(
    rows: list[tuple[int, int, int]], seed: int, placement: str
) -> None:
    """With rounds, nodes that fail and placements that may refuse: nobody is counted twice or forgotten."""
    rng = np.random.default_rng(seed)
    trace = jobs(*sorted(rows))
    trace = replace(trace, tenant=tuple(rng.choice(["A", "B", "C", ""], len(rows)).tolist()))
    knobs = {"round_length": 7.0, "placement": placement, "node_mtbf": 300.0, "node_repair": 20.0}
    policy = registry.create("cluster", "drf", knobs)
    simulation = ClusterSimulation(trace, Machines.of_sizes([3, 2, 3]), policy, seed=seed)  # type: ignore[arg-type]
    simulation.decider = Checking(simulation.decider)
    assert faults(simulation.run(), trace, simulation.machines) == []


class Checking:
    """Asks a decider, and compares its books with the view once the decision is carried out."""

    def __init__(self, decider: Any) -> None:
        self.decider = decider

    def allocate(self, view: ClusterView) -> Allocation:
        decision: Allocation = self.decider.allocate(view)
        runs = {*view.running, *(gang.job for gang in decision.start)} - {*decision.preempt}
        waits = {*view.running, *view.waiting} - runs
        for name, tenant in self.decider.tenants.items():
            held = Counter(Claim(view.jobs.demand(job), 1.0) for job in runs if view.jobs.tenant[job] == name)
            assert tenant.held == held
            lines = sorted(job for line in tenant.lines.values() for job in line)
            assert lines == sorted(job for job in waits if view.jobs.tenant[job] == name)
        return decision
