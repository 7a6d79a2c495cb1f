"""BytePS: the best shares, and the network that reproduces their time from the adapters' traffic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Hardware, Link
from experiments.parallel.interface import violations
from experiments.parallel.policies.byteps import BytePs, optimal_seconds, optimal_shares
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

BYTE_A_SECOND = Link("adapter", 1.0, 0.0, True, "test")


def machines(nodes: int, per_node: int = 1) -> Hardware:
    return cluster(nodes, per_node, network=BYTE_A_SECOND)


@pytest.mark.parametrize(
    ("n", "k", "own", "spare", "seconds"),
    [(4, 0, 0.25, 0.375, 1.5), (4, 2, 0.1, 0.3, 1.2), (4, 4, 0.0, 0.25, 1.0), (1, 1, 1.0, 0.0, 0.0)],
)
def test_four_machines_with_none_two_and_four_helpers(
    n: int, k: int, own: float, spare: float, seconds: float
) -> None:
    """A whole gradient of one byte at 1 byte/s. Four helpers are a parameter server; none an all-reduce."""
    assert optimal_shares(n, k) == pytest.approx((own, spare))
    assert optimal_seconds(n, k, 1.0, 1.0) == pytest.approx(seconds)


@given(st.integers(2, 64), st.integers(0, 64))
def test_shares_sum_to_one_and_load_both_kinds_of_machine_alike(n: int, k: int) -> None:
    k = min(k, n)
    own, spare = optimal_shares(n, k)
    assert n * own + k * spare == pytest.approx(1)
    busy = optimal_seconds(n, k, 1.0, 1.0)
    assert 1 + (n - 2) * own == pytest.approx(busy)
    if k:
        assert n * spare == pytest.approx(busy)


@pytest.mark.parametrize(("n", "k"), [(2, 0), (4, 0), (4, 2), (4, 4), (8, 3), (5, 5)])
@pytest.mark.parametrize("per_node", [1, 2])
def test_the_network_takes_the_formulas_time(n: int, k: int, per_node: int) -> None:
    """1,000 bytes in parts of one: nothing tells the simulator more than who sends which part where.

    Filling and draining the pipeline of parts adds little. Forward and backward take 3 s.
    """
    if per_node > 1 and k:
        helpers = machines(k)
        hardware = replace(machines(n, per_node), groups=(*machines(n, per_node).groups, *helpers.groups))
    else:
        hardware = machines(n + k, per_node)
    model = chain(1, parameter_bytes=1000.0)
    asked = estimate(model, hardware)
    policy = BytePs(cpu_machines=k, part_bytes=1, in_flight=64)
    plan = policy.place(model, hardware, n * per_node, asked)
    assert violations(plan, model, hardware) == []
    found = simulate(plan, asked).step_time - 3
    formula = plan.notes["network_seconds"]
    assert formula == pytest.approx(float(1000 * Fraction(2 * n * (n - 1), n * n + k * n - 2 * k)))
    assert formula <= found * (1 + 1e-9)
    assert found <= formula * 1.04


def test_helpers_beat_the_ring_and_without_any_it_is_the_rings_time() -> None:
    """The gain over a ring is (n^2 + kn - 2k) / n^2: with 4 machines and 4 helpers 1.5."""
    model = chain(1, parameter_bytes=1000.0)

    def network(policy: BytePs | DataParallel, nodes: int) -> float:
        hardware = machines(nodes)
        asked = estimate(model, hardware)
        return simulate(policy.place(model, hardware, 4, asked), asked).step_time - 3

    ring = network(DataParallel(bucket_bytes=1000), 4)
    assert ring == pytest.approx(1500)
    assert network(BytePs(part_bytes=1), 4) == pytest.approx(ring, rel=0.04)
    assert ring / network(BytePs(cpu_machines=4, part_bytes=1), 8) == pytest.approx(1.5, rel=0.04)


def test_more_helpers_than_machines_stay_idle() -> None:
    model, hardware = chain(1, parameter_bytes=8.0), machines(5)
    plan = BytePs(cpu_machines=3).place(model, hardware, 2, estimate(model, hardware))
    assert plan.devices == (0, 1)
    assert plan.synchronization.servers == (0, 1, 2, 3)


@given(st.floats(1e-3, 1e3), st.integers(1, 6))
@settings(max_examples=20)
def test_wrong_shares_are_named(total: float, nodes: int) -> None:
    model, hardware = chain(1, parameter_bytes=8.0), machines(nodes)
    plan = BytePs().place(model, hardware, nodes, estimate(model, hardware))
    sync = replace(plan.synchronization, shares=(total,) * nodes)
    found = violations(replace(plan, synchronization=sync), model, hardware)
    assert bool(found) == (abs(total * nodes - 1) > 1e-9)
