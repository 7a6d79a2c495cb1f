"""One replica may stand for those that do the same: nothing in the result tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Link
from experiments.parallel.interface import ParallelPolicy
from experiments.parallel.policies.byteps import BytePs
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.zero import Zero
from experiments.parallel.simulator import build, simulate
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
@settings(max_examples=40, deadline=None)
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


def test_as_many_are_simulated_as_differ() -> None:
    """Six devices of which two compute slower by the same factor: two classes."""
    model, hardware = chain(2), replace(cluster(1, 6), stragglers=((1, 2.0), (4, 2.0)))
    asked = estimate(model, hardware)
    plan = DataParallel().place(model, hardware, 6, asked)
    assert build.Builder(plan, asked).stands_for == [0, 1, 0, 0, 1, 0]
