"""The placer learns what a reader can work out: where transfers are expensive layers stay together, else
branches part.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from experiments.core.errors import Infeasible
from experiments.hardware import Link
from experiments.parallel.interface import violations
from experiments.parallel.policies.coloc_rl import ColocRl
from experiments.parallel.policies.coloc_rl.assignment import assigned_plan, merge_layers
from experiments.parallel.policies.coloc_rl.placer import Groups, Placer, train
from experiments.parallel.simulator import simulate
from experiments.workloads.ragged import Ragged
from tests.experiments.parallel.builders import chain, cluster, estimate

DEAR = Link("dear", 1.0, 0.0, True, "test")


def test_two_groups_with_a_dear_transfer_end_up_together() -> None:
    """Compute 1 each, transfer 10: 2 together, 12 apart. The policy is sure of it after 200 updates."""
    groups = Groups([1.0, 1.0], [[], [(0, 10.0)]])
    placer = Placer(groups, 2, np.random.default_rng(0), 0.1)
    found = train(placer, lambda p: 2.0 if p[0] == p[1] else 12.0, 200, 4, 100.0, lambda _: None)
    assert found.seconds == 2.0
    assert placer.probability((0, 0)) + placer.probability((1, 1)) > 0.95


def test_a_cost_equal_to_the_baseline_teaches_nothing() -> None:
    placer = Placer(Groups([1.0, 1.0], [[], [(0, 1.0)]]), 2, np.random.default_rng(0), 0.1)
    placer.learn([placer.draw() for _ in range(3)], [4.0, 4.0, 4.0], 4.0)
    assert not placer.table.any() and not placer.weights.any()


def test_the_gradient_is_that_of_the_log_probability() -> None:
    placer = Placer(
        Groups([1.0, 2.0, 3.0], [[], [(0, 1.0)], [(0, 1.0), (1, 3.0)]]), 3, np.random.default_rng(1), 0.1
    )
    placer.table[:] = np.random.default_rng(2).normal(size=placer.table.shape)
    placer.weights[:] = (0.3, -0.2, 0.5)
    drawn = placer.draw()
    for part, slope in ((placer.table, drawn.table), (placer.weights, drawn.weights)):
        for index in np.ndindex(part.shape):
            kept = part[index]
            part[index] = kept + 1e-6
            more = np.log(placer.probability(drawn.placement))
            part[index] = kept - 1e-6
            less = np.log(placer.probability(drawn.placement))
            part[index] = kept
            assert slope[index] == pytest.approx((more - less) / 2e-6, abs=1e-6)


def test_probabilities_of_all_placements_make_one() -> None:
    placer = Placer(Groups([1.0, 2.0], [[], [(0, 1.0)]]), 3, np.random.default_rng(1), 0.1)
    placer.weights[:] = (1.0, -2.0, 0.5)
    assert sum(placer.probability(p) for p in itertools.product(range(3), repeat=2)) == pytest.approx(1.0)


def test_branches_part_when_transfers_are_free_and_the_best_of_all_placements_is_found() -> None:
    """Four layers, the middle two side by side: 3 + 6 seconds with the branches apart, 4 + 8 on
    one device.
    """
    model = dataclasses.replace(chain(4), predecessors=Ragged.of([[], [0], [0], [1, 2]]))
    hardware = cluster(per_node=2)
    asked = estimate(model, hardware)
    plan = ColocRl(updates=20).place(model, hardware, 1, asked)
    assert violations(plan, model, hardware) == []
    every = [assigned_plan([1, 2, 3, 4], p, 1) for p in itertools.product(range(2), repeat=4)]
    assert simulate(plan, asked).step_time == min(simulate(p, asked).step_time for p in every) == 9.0
    assert plan.notes["one_device_step_time"] == 12.0


def test_dear_links_keep_a_chain_on_one_device_and_the_seed_decides_the_search() -> None:
    model, hardware = chain(6, output_bytes=100.0), cluster(per_node=2, link=DEAR)
    asked = estimate(model, hardware)
    plan = ColocRl(updates=30).place(model, hardware, 1, asked)
    assert simulate(plan, asked).step_time == 18.0
    assert plan == ColocRl(updates=30).place(model, hardware, 1, asked)


def test_memory_forces_layers_apart_and_too_little_is_infeasible() -> None:
    model = chain(4, stash_bytes=10.0)
    apart = ColocRl(updates=20).place(
        model, cluster(per_node=2, memory=20), 1, estimate(model, cluster(per_node=2, memory=20))
    )
    assert sorted(apart.notes["placement"]) == [0, 0, 1, 1]
    with pytest.raises(Infeasible, match="none of 160 placements"):
        small = cluster(per_node=2, memory=9)
        ColocRl(updates=20).place(model, small, 1, estimate(model, small))


def test_least_neighbors_are_merged_first() -> None:
    assert merge_layers([5.0, 1.0, 1.0, 5.0], 3) == [1, 3, 4]
