"""What the asynchronous policies decide: portions, shapes of pipelines, workers by throughput."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput, Infeasible
from experiments.hardware import Link
from experiments.parallel.interface import violations
from experiments.parallel.interface.adaptation import (
    Noise,
    gradient_noise,
    smoothed,
    workers_by_throughput,
)
from experiments.parallel.planning.servers import even_shares_seconds, taken_when_free
from experiments.parallel.policies.distbelief import DistBelief
from experiments.parallel.policies.kungfu import KungFu
from experiments.parallel.policies.large_minibatch import LargeMinibatch
from experiments.parallel.policies.parameter_server import ParameterServer
from experiments.parallel.policies.pipedream_2bw import PipeDream2BW
from experiments.parallel.policies.pipedream_2bw.double_buffering import PipelineShape, best_shape, shapes
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

#: One byte a second.
SLOW = Link("slow", 1.0, 0.0, True, "test")


class TestSandblaster:
    def test_free_workers_take_the_next_portion(self) -> None:
        """Ten portions of 1 s, the third worker at a quarter of the speed: 5 s, of which it does one; in
        thirds 13.3 s.
        """
        found = taken_when_free(10, [1.0, 1.0, 4.0])
        assert found.seconds == 5.0
        assert [len(taken) for taken in found.taken] == [5, 4, 1]
        assert even_shares_seconds(10, [1.0, 1.0, 4.0]) == pytest.approx(13.33, abs=0.01)

    def test_the_slowest_portion_is_run_twice(self) -> None:
        """Two portions, one worker ten times slower: the first runs the other's as well and is
        done at 2 s.
        """
        found = taken_when_free(2, [1.0, 10.0])
        assert (found.seconds, found.taken, found.duplicated) == (2.0, ((0, 1), ()), 1)
        assert taken_when_free(2, [1.0, 10.0], duplicate=False).seconds == 10.0

    @given(st.integers(1, 30), st.lists(st.sampled_from([1.0, 2.0, 5.0, 9.0]), min_size=1, max_size=5))
    def test_each_portion_is_done_once_and_copies_never_hurt(
        self, portions: int, seconds: list[float]
    ) -> None:
        found = taken_when_free(portions, seconds)
        assert sorted(p for taken in found.taken for p in taken) == list(range(portions))
        assert found.seconds <= taken_when_free(portions, seconds, duplicate=False).seconds

    def test_its_plan_takes_as_long(self) -> None:
        """Portions of 1 s without messages: 5 s a batch."""
        model, hardware = chain(1, 0.25, 0.75), cluster(4, 1)
        plan = DistBelief(method="sandblaster", portions=10, slow_worker=4.0, iterations=2).place(
            model, hardware, 10, estimate(model, hardware)
        )
        assert violations(plan, model, hardware) == []
        assert simulate(plan, estimate(model, hardware)).step_time == pytest.approx(2 * 5)
        assert plan.notes["even_shares_time"] == pytest.approx(40 / 3)


class TestServers:
    def test_downpour_sends_parameters_over_n_fetch_and_n_push(self) -> None:
        """4 bytes: each of 8 iterations sends 4 / n_push from the worker."""
        model, hardware = chain(1, parameter_bytes=4.0), cluster(2, 1)
        for pushes in (1, 2, 4):
            policy = DistBelief(n_fetch=2, n_push=pushes, iterations=8, wait=True)
            plan = policy.place(model, hardware, 1, estimate(model, hardware))
            found = simulate(plan, estimate(model, hardware))
            assert found.communication_by_kind[0]["send"] == pytest.approx(8 * 4 / pushes)

    def test_every_device_may_serve_beside_its_work(self) -> None:
        """Two devices, 4 bytes at 1 byte/s: each pulls and pushes the half that the other has: 3
        + 2 + 2 s.
        """
        model, hardware = chain(1, parameter_bytes=4.0), cluster(2, 1, network=SLOW)
        policy = ParameterServer(consistency="bsp", servers=0, iterations=4)
        plan = policy.place(model, hardware, 2, estimate(model, hardware))
        assert simulate(plan, estimate(model, hardware)).step_time == pytest.approx(4 * 7)

    def test_servers_leave_somebody_to_work(self) -> None:
        model, hardware = chain(1), cluster(2, 1)
        with pytest.raises(BadInput, match="2 servers leave no worker on 2 devices"):
            ParameterServer(servers=2).place(model, hardware, 2, estimate(model, hardware))


class TestDoubleBuffering:
    def test_shapes_fill_the_devices_and_have_as_many_micro_batches_as_stages(self) -> None:
        found = list(shapes(4, 8, 8, False))
        assert {(shape.width, shape.depth) for shape in found} == {(4, 1), (2, 2), (1, 4)}
        assert [s.samples for s in found if s.depth == 4] == [1, 2]
        assert all(shape.every >= shape.depth for shape in found)

    def test_parameters_that_are_dear_to_exchange_make_a_deep_pipeline(self) -> None:
        """4 layers of 3 s on 4 devices at 1 byte/s. 8 samples an update: 6 s for each of the four, or width
        exchanges.

        Four pipelines of one stage: 2 samples of 12 s each, and 6/4 of 400 bytes. One of four stages: 3 s a
        sample.
        """
        model, hardware = chain(4, parameter_bytes=100.0), cluster(4, 1, network=SLOW)
        best, looked_at, fitting = best_shape(estimate(model, hardware), 8)
        assert (best.shape.width, best.shape.depth) == (1, 4)
        assert best.samples_per_second == pytest.approx(1 / 3)
        assert looked_at == fitting
        free, _, _ = best_shape(estimate(model, cluster(4, 1)), 8)
        assert free.samples_per_second == pytest.approx(1 / 3)

    def test_nothing_is_recomputed_that_fits_though_links_would_hide_it(self) -> None:
        """Every stage sends 100 bytes at 1 byte/s: forward passes more or less do not count."""
        model = replace(chain(2, 1e-12, 1e-12, output_bytes=100.0), name="bound by links")
        best, _, _ = best_shape(estimate(model, cluster(2, 1, network=SLOW)), 4, depth=2)
        assert not best.shape.recompute

    def test_memory_asks_for_recomputation_then_for_depth(self) -> None:
        """A layer keeps 10 bytes a sample and sends 1: on 1 device the stash of 4 layers, on 4 devices less
        each.
        """
        model = chain(4, stash_bytes=10.0, output_bytes=1.0)
        roomy = best_shape(estimate(model, cluster(4, 1)), 16)[0]
        assert not roomy.shape.recompute
        tight, looked_at, fitting = best_shape(estimate(model, cluster(4, 1, memory=15)), 16)
        assert tight.shape == PipelineShape(1, 4, 1, 16, True)
        assert tight.bytes == 10 + 3  # of the second stage, which has three micro-batches in flight
        assert fitting < looked_at
        with pytest.raises(Infeasible, match="13 bytes are least"):
            best_shape(estimate(model, cluster(4, 1, memory=12)), 16)

    def test_the_plan_does_what_the_planner_says(self) -> None:
        """Equal stages without messages: a sample every 3 s after the pipeline has filled; two versions
        everywhere.
        """
        model, hardware = chain(4, parameter_bytes=4.0), cluster(4, 1)
        plan = PipeDream2BW(updates=5, depth=4).place(model, hardware, 8, estimate(model, hardware))
        samples = plan.notes["micro_batch"]
        found = simulate(plan, estimate(model, hardware))
        assert found.step_time == pytest.approx(3 * (5 * 8 + 3 * samples))
        assert [stage.weight_versions for stage in plan.stages] == [2, 2, 2, 2]
        states = estimate(model, hardware).states
        assert found.memory[0].persistent == pytest.approx(states.total + states.weight)

    def test_pipelines_reduce_once_an_update(self) -> None:
        """Two pipelines of one stage, 4 micro-batches an update, 8 bytes: each worker sends 2 * 1/2 * 8 an
        update.
        """
        model, hardware = chain(1, parameter_bytes=8.0), cluster(2, 1)
        plan = PipeDream2BW(updates=3, depth=1).place(model, hardware, 8, estimate(model, hardware))
        found = simulate(plan, estimate(model, hardware))
        assert found.communication_bytes == pytest.approx(3 * 8)


class TestKungFu:
    def test_gradient_noise(self) -> None:
        """|G_b|^2 = 5 at b = 1 and 2 at B = 4: signal 1, trace 4, scale 4."""
        found = gradient_noise(5.0, 1, 2.0, 4)
        assert found == Noise(1.0, 4.0)
        assert found.scale == 4.0
        assert smoothed(found, Noise(2.0, 0.0), 0.5) == Noise(1.5, 2.0)

    def test_workers_are_added_while_they_pay(self) -> None:
        """160 is more than (1 + .25) 100, 180 less than (1 + .1667) 160: two stay."""
        assert workers_by_throughput([100.0, 160.0, 180.0], 0.5) == 2
        assert workers_by_throughput([100.0, 200.0, 300.0], 0.5) == 3

    def test_a_slow_network_keeps_it_to_one_worker(self) -> None:
        """3 s of compute a sample, 12 bytes: two workers add a ring of 12 s at 1 byte/s, none at no cost."""
        model = chain(1, parameter_bytes=12.0)
        for network, workers in ((SLOW, 1), (None, 4)):
            hardware = cluster(4, 1, network=network) if network else cluster(4, 1)
            plan = KungFu().place(model, hardware, 4, estimate(model, hardware))
            assert len(plan.workers) == workers


def test_large_batches_scale_the_rate() -> None:
    model, hardware = chain(1), cluster(2, 1)
    policy = LargeMinibatch(reference_rate=0.1, reference_batch=256, warm_up=781)
    plan = policy.place(model, hardware, 8192, estimate(model, hardware))
    assert plan.notes["rate"] == pytest.approx(3.2)
    assert plan.notes["rate_per_warm_up_update"] == pytest.approx(0.003968, abs=2e-6)
    assert replace(plan, training=None, notes={}).synchronization.kind == "all_reduce"
