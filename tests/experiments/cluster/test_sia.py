"""Sia: configurations, the program that chooses among them, and what comes of it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machine, Machines, violations
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.sia.configurations import Configuration, configurations
from experiments.cluster.policies.sia.program import NOTHING_COSTS, Offers, choose
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType
from tests.experiments.cluster.profiles import goodput
from tests.experiments.cluster.traces import jobs

MIXED = Machines(
    [Machine(f"v{n}", 1, "v100-16g") for n in range(2)] + [Machine(f"k{n}", 1, "k80-12g") for n in range(4)]
)


def policy(name: str, **knobs: object) -> ClusterPolicy:
    made = registry.create("cluster", name, knobs)
    assert isinstance(made, ClusterPolicy)
    return made


def carried_out(trace: JobTrace, machines: Machines, made: ClusterPolicy) -> ClusterPlan:
    performance = performance_of(trace, machines)
    plan = simulate(trace, machines, made, performance)
    assert violations(plan, trace, machines, performance, rigid=made.rigid) == []
    assert plan.unfinished == ()
    return plan


def test_configurations_are_powers_of_two_and_whole_nodes() -> None:
    machines = Machines([*Machines.of_sizes([4, 4, 4], "t4-16g"), *Machines.of_sizes([8], "a100-40g")])
    found = [tuple(one) for one in configurations(machines, (4, 0, 4, 8))]
    assert found == [
        *(("a100-40g", gpus, 1) for gpus in (1, 2, 4, 8)),
        *(("t4-16g", 1, 1), ("t4-16g", 2, 1), ("t4-16g", 4, 1), ("t4-16g", 8, 2)),
    ]


def test_the_fast_type_goes_to_whom_it_helps_most() -> None:
    fast, slow = Configuration("fast", 1, 1), Configuration("slow", 1, 1)
    offers = [{fast: 4.0, slow: 1.0}, {fast: 1.5, slow: 1.0}]
    assert choose(offers, {"fast": 1, "slow": 1}, -0.5) == [fast, slow]
    assert choose(offers, {"fast": 1, "slow": 0}, -0.5) == [fast, None]


OPTIONS = [
    Configuration("a", 1, 1),
    Configuration("a", 2, 1),
    Configuration("b", 1, 1),
    Configuration("b", 2, 1),
]
worths = st.floats(0.1, 20.0).map(lambda worth: round(worth, 3))


@settings(max_examples=30, deadline=None)
@given(
    offers=st.lists(
        st.fixed_dictionaries({}, optional=dict.fromkeys(OPTIONS, worths)), min_size=1, max_size=4
    ),
    capacity=st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 3)}),
    power=st.sampled_from([-1.0, -0.5, 0.5, 1.0]),
)
def test_the_program_finds_what_trying_everything_finds(
    offers: list[Offers], capacity: dict[str, int], power: float
) -> None:
    def value(chosen: tuple[Configuration | None, ...]) -> float:
        used = {kind: sum(one.gpus for one in chosen if one and one.kind == kind) for kind in capacity}
        if any(used[kind] > capacity[kind] for kind in capacity):
            return -np.inf
        pairs = zip(offers, chosen, strict=True)
        return sum(np.sign(power) * offered[one] ** power + NOTHING_COSTS for offered, one in pairs if one)

    best = max(value(chosen) for chosen in itertools.product(*[[None, *offered] for offered in offers]))
    assert value(tuple(choose(offers, capacity, power))) == pytest.approx(best, rel=2e-4, abs=1e-6)


def test_a_job_that_chooses_its_batch_grows_as_it_measures_itself() -> None:
    machines = Machines.of_sizes([4, 4])
    trace = goodput.profiles_for(jobs((0, 1, 0)), machines)
    plan = carried_out(trace, machines, policy("sia", interval=2.0))
    sizes = [one.gang.size for one in plan.executions]
    assert sizes[0] == 1
    assert all(later <= 2 * before for before, later in itertools.pairwise(sizes))
    assert max(sizes) > 1


def mixed_trace(count: int, seed: int) -> JobTrace:
    """Jobs of three models: one ten times as fast on the good type, one twice, one no faster."""
    rng = np.random.default_rng(seed)
    rows = [(float(at), 1, 0.0) for at in np.sort(rng.integers(0, 100 * count, count))]
    speeds = {
        "v100": {("much", 1): 10.0, ("some", 1): 2.0, ("none", 1): 1.0},
        "k80": dict.fromkeys([("much", 1), ("some", 1), ("none", 1)], 1.0),
    }
    table = DeviceSpeeds("by hand", {kind: SpeedsOfType(alone, {}) for kind, alone in speeds.items()}, {})
    models = tuple(rng.choice(["much", "some", "none"], count).tolist())
    steps = np.round(rng.lognormal(6.5, 1.0, count)) + 1
    return replace(jobs(*rows), model=models, traits={"iterations": steps}, profiles=table)


def test_on_a_mixed_cluster_jobs_end_sooner_than_under_max_min_fairness() -> None:
    """On each of five traces."""
    means = []
    for seed in range(5):
        trace = mixed_trace(60, seed)
        pair = [
            figures(carried_out(trace, MIXED, made), trace, MIXED)["avg_jct"]
            for made in (policy("sia"), policy("gavel", objective="max_min"))
        ]
        means.append(pair)
    sia, gavel = np.array(means).T
    assert (sia < gavel).all()


def test_a_trace_without_speeds_is_refused_and_not_among_all() -> None:
    told = jobs((0, 1, 10)).told()
    assert "(goodput or oracle)" in policy("sia").lacks(told)
    assert not policy("sia").lacks({**told, "speeds": "oracle"})
