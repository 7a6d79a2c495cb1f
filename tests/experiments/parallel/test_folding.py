"""One replica may stand for those that do the same: nothing in the result tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Link
from experiments.hardware.parts import Switch
from experiments.parallel.interface import ParallelPolicy
from experiments.parallel.policies.byteps import BytePs
from experiments.parallel.policies.chimera import Chimera
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.zero import Zero
from experiments.parallel.policies.zero_bubble import ZeroBubble
from experiments.parallel.simulator import build, simulate, simulate_with_traffic
from experiments.parallel.simulator.traffic import totals
from tests.experiments.parallel.builders import chain, cluster, estimate

POLICIES = [
    DataParallel(bucket_bytes=20),
    DataParallel(algorithm="hierarchical", micro_batches=2),
    Zero(stage=1),
    Zero(stage=2, bucket_bytes=20, micro_batches=3),
    Zero(stage=3, bucket_bytes=20, micro_batches=2),
    BytePs(part_bytes=5),
]


@given(
    policy=st.sampled_from(POLICIES),
    stragglers=st.dictionaries(st.integers(0, 5), st.sampled_from([1.5, 3.0]), max_size=3),
    rails=st.sampled_from([1, 3]),
)
@settings(max_examples=40)
def test_a_step_with_and_without_stand_ins_is_the_same(
    policy: ParallelPolicy, stragglers: dict[int, float], rails: int
) -> None:
    model = chain(4, parameter_bytes=16.0, stash_bytes=3.0)
    slow = Link("slow", 20.0, 0.125, True, "test")
    hardware = cluster(2, 3, link=slow, network=slow)
    hardware = replace(hardware, rails=rails, stragglers=tuple(sorted(stragglers.items())))
    asked = estimate(model, hardware)
    plan = policy.place(model, hardware, 36, asked)
    folded = simulate(plan, asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "representatives", lambda plan, *_: list(range(len(plan.workers))))
        whole = simulate(plan, asked)
    assert folded == whole


PIPELINES = [
    OneForwardOneBackward(stages=2, micro_batches=3),
    OneForwardOneBackward(stages=4, micro_batches=2),
    Interleaved(stages=2, micro_batches=2),
    Chimera(stages=2, micro_batches=2),
    ZeroBubble(stages=2, micro_batches=3),
]


@given(
    policy=st.sampled_from(PIPELINES),
    nodes=st.sampled_from([2, 4]),
    stragglers=st.dictionaries(st.integers(0, 7), st.sampled_from([1.5, 3.0]), max_size=2),
    rails=st.sampled_from([1, 2]),
    switch=st.sampled_from([None, Switch(2, 2.0, 0.5)]),
    algorithm=st.sampled_from(["ring", "tree", "doubling"]),
)
@settings(max_examples=40)
def test_pipelines_with_and_without_stand_ins_take_the_same_steps(
    policy: ParallelPolicy,
    nodes: int,
    stragglers: dict[int, float],
    rails: int,
    switch: Switch | None,
    algorithm: str,
) -> None:
    """Eight to sixteen devices, four to a node; a step, all its bytes and all its lanes."""
    model = chain(8, parameter_bytes=16.0, output_bytes=3.0, stash_bytes=3.0)
    hardware = cluster(
        nodes, 4, link=Link("a", 30.0, 0.125, True, "test"), network=Link("b", 7.0, 0.25, True, "test")
    )
    hardware = replace(hardware, rails=rails, switch=switch, stragglers=tuple(sorted(stragglers.items())))
    asked = estimate(model, hardware)
    plan = policy.place(model, hardware, 48, asked)
    plan = replace(plan, synchronization=replace(plan.synchronization, algorithm=algorithm))
    folded, told = simulate_with_traffic(plan, asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "representatives", lambda plan, *_: list(range(len(plan.workers))))
        whole, each = simulate_with_traffic(plan, asked)
    assert folded == whole
    assert [row["messages"] for row in totals(told)] == [row["messages"] for row in totals(each)]
    assert sum(one.times for one in told) == len(each)


def test_as_many_pipelines_are_simulated_as_share_their_nodes() -> None:
    """Sixteen pipelines of two stages in nodes of four: four of them share their nodes and stand for the
    others.
    """
    hardware = cluster(8, 4)
    model = chain(2, output_bytes=1.0)
    plan = OneForwardOneBackward(stages=2, micro_batches=2).place(
        model, hardware, 32, estimate(model, hardware)
    )
    built = build.Builder(plan, estimate(model, hardware))
    assert built.stands_for == [worker % 4 + worker // 16 * 16 for worker in range(32)]


def test_as_many_are_simulated_as_differ() -> None:
    """Six devices of which two compute slower by the same factor: two classes."""
    model, hardware = chain(2), replace(cluster(1, 6), stragglers=((1, 2.0), (4, 2.0)))
    asked = estimate(model, hardware)
    plan = DataParallel().place(model, hardware, 6, asked)
    assert build.Builder(plan, asked).stands_for == [0, 1, 0, 0, 1, 0]
