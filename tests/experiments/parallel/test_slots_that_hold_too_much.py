"""What a worker holds is known from the order of its slots: a plan that cannot fit never becomes tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.parallel.interface import ParallelPolicy
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.pipemare import PipeMare
from experiments.parallel.policies.zero_bubble import ZeroBubble
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.memory import check_fits, refuse_too_large, usages, usages_by_order
from experiments.parallel.simulator.tasks import replay
from tests.experiments.parallel.builders import chain, cluster, estimate

POLICIES: list[ParallelPolicy] = [
    GPipe(stages=4, micro_batches=8),
    OneForwardOneBackward(stages=4, micro_batches=8),
    Interleaved(stages=2, chunks=2, micro_batches=8),
    ZeroBubble(stages=4, micro_batches=8),
    PipeMare(stages=4, micro_batches=8, mini_batches=3, synchronous=1),
]


def builder(policy: ParallelPolicy, memory: int = 10**15, stash: float = 7.0) -> Builder:
    model = chain(4, batch=16, parameter_bytes=64.0, output_bytes=3.0, stash_bytes=stash)
    asked = estimate(model, cluster(1, 4, memory=memory))
    plan = policy.place(model, asked.cluster, 16, asked)
    return Builder(plan, asked.of_plan(plan))


@given(policy=st.sampled_from(POLICIES), stash=st.floats(0.0, 1e6))
def test_the_order_of_slots_says_what_their_times_say(policy: ParallelPolicy, stash: float) -> None:
    built = builder(policy, stash=stash)
    ordered = [usage.peak for usage in usages_by_order(built)]
    timed = usages(built.build(), replay(built.graph))
    assert ordered == pytest.approx([usage.peak for usage in timed])


def test_a_pipeline_that_holds_too_much_is_refused_in_the_same_words_before_its_tasks_are_made() -> None:
    """GPipe holds all 16 samples: 112 bytes of a layer and what it received, next to states of 256."""
    built = builder(POLICIES[0], memory=300)
    with pytest.raises(Infeasible) as early:
        refuse_too_large(built)
    assert len(built.graph) == 0
    with pytest.raises(Infeasible) as late:
        check_fits(built, usages(built.build(), replay(built.graph)))
    assert (str(early.value), early.value.missing) == (str(late.value), late.value.missing)
