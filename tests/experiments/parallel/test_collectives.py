"""The fastest all-reduce by size: found by search and by formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Link
from experiments.hardware.algorithms import Algorithms
from experiments.hardware.collectives import ring_beats_tree_from
from experiments.parallel.interface import ALGORITHMS
from experiments.parallel.policies.collectives import Collectives, choices, crossover
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

WIRE = Link("wire", bandwidth=1e10, latency=10e-6, duplex=True, source="alpha 10 us, beta 0.1 ns/B")


@pytest.mark.parametrize("duplex", [True, False])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("ranks", [4, 5, 8, 16, 33, 64])
def test_the_search_finds_the_formulas_crossover(ranks: int, inside: bool, duplex: bool) -> None:
    link = replace(WIRE, duplex=duplex)
    hardware = cluster(1, ranks, link=link) if inside else cluster(ranks, 1, network=link)
    searched = crossover(Algorithms(hardware), (tuple(range(ranks)),))
    assert searched == pytest.approx(ring_beats_tree_from(link, ranks), rel=1e-6)
    assert choices(hardware)["ring_beats_tree_from"]["formula"] == pytest.approx(searched, rel=1e-6)


def test_two_ranks_never_want_a_tree() -> None:
    assert crossover(Algorithms(cluster(1, 2, link=WIRE)), ((0, 1),)) == 0


def test_a_kilobyte_doubles_and_ten_megabytes_are_halved() -> None:
    """Eight ranks: 30.3 us by doubling, 1.81 ms by halving and doubling."""
    algorithms = Algorithms(cluster(1, 8, link=WIRE))
    everybody = (tuple(range(8)),)
    assert algorithms.best("all_reduce", everybody, 1e3) == "doubling"
    assert algorithms.best("all_reduce", everybody, 10e6) == "halving_doubling"


@given(st.integers(1, 4), st.sampled_from([1, 2, 3, 4]), st.floats(1.0, 1e9))
@settings(max_examples=30)
def test_auto_is_never_slower_than_any_algorithm(nodes: int, per_node: int, size: float) -> None:
    hardware = cluster(nodes, per_node, link=WIRE, network=replace(WIRE, bandwidth=1e9))
    algorithms = Algorithms(hardware)
    everybody = (tuple(range(nodes * per_node)),)
    usable = algorithms.usable("all_reduce", everybody)
    assert set(usable) == set(ALGORITHMS) - {"auto"}
    fastest = usable[algorithms.best("all_reduce", everybody, size)].seconds(size)
    assert fastest == min(cost.seconds(size) for cost in usable.values())


def test_a_step_takes_the_algorithm_of_its_buckets_sizes() -> None:
    """One layer of 1 kB on eight devices: 3 + 30.3 us by doubling; a ring takes 140.175 us."""
    model, hardware = chain(1, parameter_bytes=1e3), cluster(1, 8, link=WIRE)
    asked = estimate(model, hardware)

    def step(algorithm: str) -> float:
        plan = Collectives(algorithm=algorithm).place(model, hardware, 8, asked)
        return simulate(plan, asked).step_time

    assert step("auto") == pytest.approx(3 + 30.3e-6, abs=1e-9)
    assert step("ring") == pytest.approx(3 + 140.175e-6, abs=1e-9)
