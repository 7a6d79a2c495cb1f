"""Parameter servers: iterations done by hand, traffic in closed form, staleness as seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.hardware import Link
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    ParallelPlan,
    Slot,
    Stage,
    Synchronization,
    Worker,
    violations,
)
from experiments.parallel.simulator import simulate
from experiments.parallel.simulator.servers import Records, ServerReplay
from tests.experiments.parallel.builders import chain, cluster, estimate

#: One byte a second: seconds of a message are its bytes.
SLOW = Link("slow", 1.0, 0.0, True, "test")


def plan(
    slow: Sequence[tuple[float, ...]], iterations: int, staleness: int | None, servers: int = 1, **sync: Any
) -> ParallelPlan:
    """One sample and one micro-batch for each worker and iteration; servers are the devices behind the
    workers.
    """
    count = len(slow)
    workers = tuple(
        Worker(
            (number,),
            tuple(
                Slot(kind, i * count + number, 0) for i in range(iterations) for kind in (FORWARD, BACKWARD)
            ),
            factors,
        )
        for number, factors in enumerate(slow)
    )
    return ParallelPlan(
        batch=count * iterations,
        micro_batches=count * iterations,
        mesh=(("data", count),),
        stages=(Stage(0, 1, tuple(range(count))),),
        workers=workers,
        steps=iterations,
        synchronization=Synchronization(
            "parameter_server", staleness=staleness, servers=tuple(range(count, count + servers)), **sync
        ),
    )


def seen(made: ParallelPlan, parameter_bytes: float = 0.0, network: Link = SLOW) -> Records:
    """An iteration of a worker that is not slow takes 1 s; one device a node."""
    model = chain(1, 0.25, 0.75, parameter_bytes=parameter_bytes)
    devices = len(made.workers) + len(made.synchronization.servers)
    hardware = cluster(devices, 1, network=network)
    assert violations(made, model, hardware) == []
    return ServerReplay(made, estimate(model, hardware, optimizer="sgd")).run()


def done_by(records: Records, moment: float) -> tuple[int, ...]:
    """Iterations done by each worker."""
    return tuple(sum(time <= moment for time in times) for times in records.done)


@pytest.mark.parametrize(("staleness", "done"), [(0, (6, 6)), (1, (7, 6)), (3, (9, 6)), (None, (12, 6))])
def test_a_fast_and_a_slow_worker_after_twelve_seconds(staleness: int | None, done: tuple[int, int]) -> None:
    assert done_by(seen(plan([(), (2.0,)], 12, staleness)), 12.0) == done


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=4),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_no_worker_begins_too_far_ahead(factors: list[float], staleness: int, parameters: int) -> None:
    found = seen(plan([(f,) for f in factors], 6, staleness), 4.0 * parameters)
    assert max(found.leads) <= staleness
    assert len(found.staleness) >= sum(len(done) for done in found.done) * (parameters > 0)
    assert max(len(done) for done in found.done) - min(len(done) for done in found.done) <= staleness + 1


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (1, 2), (4, 2), (3, 2), (2, 3), (5, 3)])
def test_an_iteration_takes_its_compute_and_the_slower_of_the_nics_each_way(
    workers: int, servers: int
) -> None:
    """BSP with 1,200 bytes: 1 s + twice max(n, P n / k) at 1 byte/s, since workers take turns at each range
    of a server.

    What is left is that a worker begins to compute before the last range of the others.
    """
    made = plan([()] * workers, 3, 0, servers, bucket_bytes=10.0)
    traffic = max(1200.0, workers * 1200.0 / servers)
    found = seen(made, 1200.0)
    assert found.window == pytest.approx(3 * (1 + 2 * traffic), rel=0.02)
    assert set(found.staleness) == {0}


def test_a_straggler_costs_everybody_under_bsp_and_nobody_else_under_ssp() -> None:
    """Each of two workers takes 3 s in place of 1 in every fourth iteration, the second one two iterations
    later.
    """
    slow = [(3.0, 1.0, 1.0, 1.0), (1.0, 1.0, 3.0, 1.0)]
    assert seen(plan(slow, 8, 0)).window == pytest.approx(2 * (3 + 1 + 3 + 1))
    assert done_by(seen(plan(slow, 8, 2)), 12.0) == (8, 8)  # 2 * (3 + 1 + 1 + 1): nobody waited


def test_staleness_is_what_others_pushed_meanwhile() -> None:
    """Of two equal workers under ASP each finds the other's push since its read, but the very first finds
    none.
    """
    found = seen(plan([(), ()], 10, None), 1e-9)
    assert sorted(set(found.staleness)) == [0, 1]
    assert found.staleness.count(0) == 1


def test_a_single_worker_is_never_late() -> None:
    assert set(seen(plan([()], 5, None), 4.0).staleness) == {0}


def test_fetching_and_pushing_seldom_saves_messages() -> None:
    """One worker, 8 iterations, 4 bytes: 8 s + 8 fetches and pushes of 4 s; every fourth: 2 of each."""
    assert seen(plan([()], 8, None), 4.0).window == pytest.approx(8 + 16 * 4)
    assert seen(plan([()], 8, None, fetch_every=4, push_every=4), 4.0).window == pytest.approx(8 + 4 * 4)


def test_messages_beside_the_compute_leave_the_longest_of_the_three() -> None:
    """Fetch and push take 0.5 s each on ways of their own: after the first fetch only the 1 s of compute
    counts.
    """
    found = seen(plan([()], 8, None, fetch_ahead=True), 0.5)
    assert found.done[0] == pytest.approx([0.5 + 1 + i for i in range(8)])
    assert max(found.staleness) >= 1  # computed with what was there before its own last push arrived


def test_the_figures_of_a_run() -> None:
    """Fast and slow at ASP for 12 s: 18 iterations, so 24 take 16 s; nobody is held back."""
    model, hardware = chain(1, 0.25, 0.75, parameter_bytes=0.0), cluster(3, 1)
    made = plan([(), (2.0,)], 12, None)
    found = simulate(made, estimate(model, hardware, optimizer="sgd"))
    assert found.samples_per_second == pytest.approx(1.5)
    assert found.step_time == pytest.approx(16.0)
    assert found.bubble_fraction == 0.0
    assert found.asynchrony.series["samples_per_second_by_worker"].y == pytest.approx([1.0, 0.5])
    bound = simulate(
        replace(made, synchronization=replace(made.synchronization, staleness=0)), estimate(model, hardware)
    )
    assert bound.bubble_by_worker == pytest.approx((11 / 24, 0.0))  # not after its last iteration


def test_a_server_needs_its_share_of_the_states() -> None:
    """Weights, gradients and Adam's moments: 16 of 4 bytes; half of it on each of two servers of 7 bytes."""
    model, hardware = chain(1, parameter_bytes=4.0), cluster(4, 1, memory=10)
    with pytest.raises(Infeasible, match="6 bytes missing"):
        simulate(plan([(), ()], 2, 0, 1), estimate(model, hardware))
    simulate(plan([(), ()], 2, 0, 2), estimate(model, hardware))


def test_what_cannot_be_served_is_refused() -> None:
    model, hardware = chain(1), cluster(2, 1)
    made = plan([(), ()], 2, 0)
    assert violations(made, model, hardware) == ["server 2 is not one of the cluster's 2 devices"]
    with pytest.raises(ImpossiblePlan, match="slow workers are told with parameter servers only"):
        simulate(
            replace(plan([(), (2.0,)], 2, 0), synchronization=Synchronization()), estimate(model, hardware)
        )
