"""Pairs that a table of speeds lacks are never put on the same devices, whoever schedules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, Machine, Machines, violations
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC, JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType, Variant
from tests.experiments.cluster.traces import jobs

Pairs = dict[tuple[Variant, Variant], tuple[float, float]]
MODELS = ("a", "b", "c")
SIZES = (1, 2)
PAIRS = [((x, size), (y, size)) for size in SIZES for x in MODELS for y in MODELS if x <= y]


def nodes(*sizes: int) -> Machines:
    return Machines([Machine(f"node {place}", size, "v100-16g") for place, size in enumerate(sizes)])


def with_speeds(trace: JobTrace, model: str, together: Pairs, spread: Pairs | None = None) -> JobTrace:
    """Jobs of one step a second alone, with ``together`` as all that was measured of pairs."""
    alone = {(name, size): 1.0 for name in MODELS for size in SIZES}
    elsewhere = {} if spread is None else {"v100": SpeedsOfType(alone, spread)}
    speeds = DeviceSpeeds("table", {"v100": SpeedsOfType(alone, together)}, elsewhere)
    names, steps = tuple(model), trace.service
    return replace(trace, model=names, profiles=speeds, traits={**trace.traits, "iterations": steps})


def with_classes(trace: JobTrace, guests: str) -> JobTrace:
    """``g`` for a guest, anything else for a guaranteed job; each uses half of a device."""
    classes = tuple(OPPORTUNISTIC if letter == "g" else GUARANTEED for letter in guests)
    traits = {**trace.traits, "class": classes, "utilization": np.full(len(trace), 0.5)}
    return replace(trace, traits=traits)


def run(trace: JobTrace, machines: Machines, policy: str, **knobs: Any) -> tuple[ClusterPlan, list[str]]:
    """The plan, and what is said of the speeds that it had."""
    performance = performance_of(trace, machines)
    plan = simulate(trace, machines, registry.create("cluster", policy, knobs), performance)
    assert violations(plan, trace, machines, performance) == []
    assert plan.unfinished == plan.rejected == ()
    return plan, [said for said in performance.describe()["assumed"] if "lacks" in said]


def neighbors_in(plan: ClusterPlan) -> set[frozenset[int]]:
    """Jobs that had a device at one time."""
    holding = defaultdict(list)
    for one in plan.executions:
        for device in one.gang.devices:
            holding[device].append((one.start, one.end, one.gang.job))
    return {
        frozenset((job, other))
        for rows in holding.values()
        for start, end, job in rows
        for begin, until, other in rows
        if job != other and max(start, begin) < min(end, until)
    }


class TestGandiva:
    """Two jobs of 600 steps on one GPU take turns of 60 s until they are packed, if they ever are."""

    def test_a_pair_that_the_table_lacks_takes_turns_to_the_end(self) -> None:
        """Twenty slices of 60 s with a second between two of them."""
        trace = with_speeds(jobs((0, 1, 600), (0, 1, 600)), "ab", {})
        plan, said = run(trace, nodes(1), "gandiva")
        assert neighbors_in(plan) == set()
        assert max(one.end for one in plan.executions) == 20 * 60 + 19
        assert said == ["pairs of models that the table lacks, which share no devices: 1"]

    def test_a_pair_told_under_the_name_of_the_other_is_tried(self) -> None:
        """0.9 and 0.8 steps a second, each of its own."""
        trace = with_speeds(jobs((0, 1, 600), (0, 1, 600)), "ba", {(("a", 1), ("b", 1)): (0.9, 0.8)})
        plan, said = run(trace, nodes(1), "gandiva")
        assert neighbors_in(plan) == {frozenset((0, 1))}
        first = next(one for one in plan.executions if one.gang.share < 1 and one.gang.job == 0)
        assert first.work / (first.end - first.start - first.restarting) == pytest.approx(0.8)
        assert said == []

    def test_a_pair_that_does_not_fit_is_never_tried_and_not_called_unmeasured(self) -> None:
        trace = with_speeds(jobs((0, 1, 600), (0, 1, 600)), "ab", {(("a", 1), ("b", 1)): (0.0, 0.0)})
        plan, said = run(trace, nodes(1), "gandiva")
        assert (neighbors_in(plan), said) == (set(), [])

    def test_on_several_nodes_the_speeds_there_count(self) -> None:
        """Two GPUs on two nodes: what does not fit there is not tried; what was not measured is as on one."""
        trace = jobs((0, 2, 600), (0, 2, 600))
        pair = (("a", 2), ("a", 2))
        for spread, packed in (({pair: (0.0, 0.0)}, False), ({}, True)):
            plan, _ = run(with_speeds(trace, "aa", {pair: (0.9, 0.9)}, spread), nodes(1, 1), "gandiva")
            assert bool(neighbors_in(plan)) == packed


def test_a_guest_waits_where_nobody_knows_how_it_runs_next_to_the_guaranteed_job() -> None:
    """Only b and c were measured together: the guest of model c is placed on the GPU of b."""
    pairs: Pairs = {(("b", 1), ("c", 1)): (1.0, 0.5)}
    trace = with_classes(jobs((0, 1, 100), (0, 1, 100), (1, 1, 30), (1, 1, 30)), "..gg")
    plan, said = run(with_speeds(trace, "abca", pairs), nodes(1, 1), "antman")
    assert neighbors_in(plan) == {frozenset((1, 2))}
    assert [one.start for one in plan.executions if one.gang.job == 3] == [100]
    assert said == ["pairs of models that the table lacks, which share no devices: 3"]


def test_gavel_divides_time_among_the_pairs_that_were_measured() -> None:
    """On one GPU a and b run at full speed together, c with nobody: max-min packs a and b."""
    pairs: Pairs = {(("a", 1), ("b", 1)): (1.0, 1.0)}
    trace = with_speeds(jobs((0, 1, 4000), (0, 1, 4000), (0, 1, 4000)), "bac", pairs)
    plan, said = run(trace, nodes(1), "gavel", packing=True)
    assert neighbors_in(plan) == {frozenset((0, 1))}
    assert said == ["pairs of models that the table lacks, which share no devices: 2"]


def test_a_job_that_the_table_lacks_alone_is_bad_input() -> None:
    trace = with_speeds(jobs((0, 1, 10), (0, 1, 10)), "ad", {})
    with pytest.raises(BadInput, match="table has no speed of 'd' on 1 devices v100-16g"):
        run(trace, nodes(2), "gandiva")


def test_parts_of_devices_have_no_speed_in_such_a_table() -> None:
    trace = jobs((0, 1, 10), (0, 1, 10))
    trace = replace(trace, traits={"gpu_share": np.array([1.0, 0.5])})
    with pytest.raises(BadInput, match=r"1 of 2 jobs ask for parts of devices \(gpu_share\)"):
        performance_of(with_speeds(trace, "aa", {}), nodes(1))


speeds = st.sampled_from([(0.0, 0.0), (0.9, 0.8), (0.4, 0.4), (1.0, 1.0)])
rows = st.tuples(
    st.integers(0, 300), st.sampled_from(SIZES), st.integers(1, 400), st.sampled_from(MODELS), st.booleans()
)


@pytest.mark.parametrize(
    ("policy", "knobs"),
    [
        ("gandiva", {}),
        ("gandiva", {"empty_nodes": True}),
        ("antman", {}),
        ("gavel", {"packing": True, "round_length": 30.0, "reset_interval": 60.0}),
    ],
)
@settings(max_examples=25, deadline=None)
@given(
    chosen=st.dictionaries(st.sampled_from(PAIRS), speeds),
    spread=st.none() | st.dictionaries(st.sampled_from(PAIRS), speeds),
    drawn=st.lists(rows, min_size=1, max_size=12),
    sizes=st.sampled_from([(1, 1), (2,), (2, 1, 1)]),
)
def test_with_any_part_of_a_table_every_job_ends_and_only_pairs_that_run_share(
    policy: str,
    knobs: dict[str, Any],
    chosen: Pairs,
    spread: Pairs | None,
    drawn: list[tuple[int, int, int, str, bool]],
    sizes: tuple[int, ...],
) -> None:
    drawn = sorted(drawn)
    trace = with_classes(jobs(*(row[:3] for row in drawn)), "".join("g" if row[4] else "." for row in drawn))
    plan, _ = run(
        with_speeds(trace, "".join(row[3] for row in drawn), chosen, spread), nodes(*sizes), policy, **knobs
    )
    for pair in neighbors_in(plan):
        one, other = (((drawn[job][3]), drawn[job][1]) for job in pair)
        known = chosen.get((one, other)) or chosen.get((other, one)) or (0.0, 0.0)
        there = (spread or {}).get((one, other)) or (spread or {}).get((other, one)) or known
        assert max(min(known), min(there)) > 0
