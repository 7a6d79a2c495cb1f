"""Which weights each pass of an asynchronous pipeline uses: closed forms of the papers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import resolve
from experiments.hardware.roofline import memory_rate
from experiments.parallel.interface import LivePolicy, ParallelPlan, violations
from experiments.parallel.interface.training import (
    Learning,
    annealed_divisor,
    correction_share,
    scaled_rate,
)
from experiments.parallel.interface.versions import Use, VersionTrace, version_trace
from experiments.parallel.policies.ampnet import AmpNet
from experiments.parallel.policies.pipedream import PipeDream
from experiments.parallel.policies.pipemare import PipeMare
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate


def planned(policy: LivePolicy, stages: int, batch: int = 1, **model: Any) -> ParallelPlan:
    """Equal layers of 1 s forward and 2 s backward for a sample, one for each device."""
    layers, hardware = chain(stages, batch=batch, **model), cluster(stages, 1)
    plan = policy.place(layers, hardware, batch, estimate(layers, hardware))
    assert violations(plan, layers, hardware) == []
    assert ParallelPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    return plan


def gaps(trace: VersionTrace, stages: int) -> list[int]:
    """Updates between forward and backward of the last micro-batch."""
    return [max(use.staleness for use in trace.of_stage(stage)) for stage in range(stages)]


class TestPipeDream:
    def test_four_stages_keep_four_to_one_versions_and_their_gradients_are_as_late(self) -> None:
        trace = version_trace(planned(PipeDream(mini_batches=12, replicate=False), 4))
        assert trace.kept == (4, 3, 2, 1)
        assert gaps(trace, 4) == [3, 2, 1, 0]
        assert all(use.forward == use.backward for use in trace.uses.values())

    def test_every_update_takes_its_time(self) -> None:
        """One device, 10 mini-batches of 3 s: each ends with all states read and written and the gradients
        read.
        """
        model = chain(1, parameter_bytes=4e9)
        hardware = resolve({"cluster": {"nodes": 1, "devices_per_node": 1, "device": "a100-80g"}})
        asked = estimate(model, hardware)
        plan = PipeDream(mini_batches=10, replicate=False).place(model, hardware, 1, asked)
        update = 1e9 * (2 * (4 + 8) + 4) / memory_rate(hardware.device)
        assert simulate(plan, asked).step_time == pytest.approx(10 * (3 + update))

    def test_vertical_sync_uses_one_version_on_every_stage(self) -> None:
        """Update t uses the weights of t - n + 1: mini-batch b those of b - 3, of which every stage keeps
        four.
        """
        trace = version_trace(planned(PipeDream(mini_batches=12, replicate=False, vertical_sync=True), 4))
        for (_, mini_batch), use in trace.uses.items():
            assert use == Use(max(mini_batch - 3, 0), max(mini_batch - 3, 0), mini_batch)
        assert trace.kept == (4, 4, 4, 4)


class TestDoubleBuffering:
    @pytest.mark.parametrize(
        ("every", "kept"),
        [(4, (2, 2, 2, 2)), (5, (2, 2, 2, 2)), (8, (2, 2, 2, 2)), (2, (3, 2, 2, 2)), (1, (4, 3, 2, 2))],
    )
    def test_two_versions_are_enough_from_the_depth_on(self, every: int, kept: tuple[int, ...]) -> None:
        assert version_trace(double_buffered(4, every)).kept == kept

    @given(st.integers(1, 5), st.integers(0, 4))
    @settings(max_examples=20)
    def test_every_gradient_is_one_update_late_on_every_stage(self, depth: int, more: int) -> None:
        every = depth + more
        for (_, micro_batch), use in version_trace(double_buffered(depth, every)).uses.items():
            update = micro_batch // every
            assert use == Use(max(update - 1, 0), max(update - 1, 0), update)

    def test_the_recurrence_of_a_parabola(self) -> None:
        """x^2 / 2 at rate 0.1 from 1: each update takes the gradient at the weights before: 0.9,
        0.8, 0.71.
        """
        weights = [1.0]
        for use in version_trace(double_buffered(1, 1)).of_stage(0)[:3]:
            weights.append(weights[use.newest] - 0.1 * weights[use.backward])
        assert weights[1:] == pytest.approx([0.9, 0.8, 0.71])


def double_buffered(depth: int, every: int) -> ParallelPlan:
    """The policy itself keeps to ``every >= depth``; fewer are for the test."""
    from experiments.parallel.interface import Training, WeightRule
    from experiments.parallel.planning.stages.one_by_one import replica_order
    from experiments.parallel.planning.stages.pipelines import window_plan

    orders = [replica_order(stage, 0, 1, depth - stage, every * 6) for stage in range(depth)]
    bounds = [(stage, stage + 1) for stage in range(depth)]
    training = Training(weights=WeightRule("delayed", every))
    return window_plan(bounds, orders, cluster(depth, 1), every, 6, training)


class TestAmpNet:
    def test_one_key_is_sequential(self) -> None:
        trace = version_trace(planned(AmpNet(max_active_keys=1, updates=6), 3))
        assert all(use == Use(b, b, b) for (_, b), use in trace.uses.items())

    def test_as_many_keys_as_stages_keep_a_chain_busy(self) -> None:
        """p stages of 3 s: an instance leaves every 3 s; stage s meets p - 1 - s updates between its passes
        in the end.

        The first ones, which enter at once, all run forward before the first comes back.
        """
        plan = planned(AmpNet(updates=20), 4)
        trace = version_trace(plan)
        assert [trace.delay(stage, 1) for stage in range(4)] == [3, 2, 1, 0]
        assert gaps(trace, 4) == [3, 3, 3, 0]
        found = simulate(plan, estimate(chain(4), cluster(4, 1)))
        assert found.step_time == pytest.approx(3 * (20 + 3))
        assert found.asynchrony.metrics["weight_versions"] == 1

    def test_a_stage_updates_after_so_many_gradients(self) -> None:
        trace = version_trace(planned(AmpNet(min_update_frequency=4, updates=5), 2, batch=4))
        assert gaps(trace, 2) == [1, 0]
        assert trace.delay(0, 4) == pytest.approx(1 / 4)  # of four in a row the first began before the update


class TestPipeMare:
    def test_delays_are_those_of_the_paper(self) -> None:
        """Stage i of P with N micro-batches: (2 (P - i) + 1) / N updates, here P = 4 and N = 2."""
        plan = planned(PipeMare(micro_batches=2, mini_batches=20, synchronous=0), 4, batch=2)
        trace = version_trace(plan)
        assert [trace.delay(stage, 2) for stage in range(4)] == [3.5, 2.5, 1.5, 0.5]
        assert all(use.backward == use.newest for use in trace.uses.values())
        assert trace.kept == (1, 1, 1, 1)
        assert [stage.weight_versions for stage in plan.stages] == [2, 2, 2, 2]  # with the average of changes

    def test_the_first_mini_batches_are_flushed(self) -> None:
        trace = version_trace(planned(PipeMare(micro_batches=2, mini_batches=6, synchronous=3), 3, batch=2))
        early = [use for (_, micro_batch), use in trace.uses.items() if micro_batch < 6]
        assert all(use.staleness == 0 for use in early)

    def test_rates_are_divided_less_and_less(self) -> None:
        """Delay 4, 10 updates: 4, then 4 to the power 1/2, then 1; below one update nothing is divided."""
        assert [annealed_divisor(4.0, update, 10) for update in (0, 5, 10, 99)] == [4.0, 2.0, 1.0, 1.0]
        assert annealed_divisor(0.5, 0, 10) == 1.0
        assert Learning(rate=0.8, anneal=10).rate_at(0, delay=4.0) == 0.2

    def test_a_constant_velocity_is_corrected_exactly(self) -> None:
        """The average of equal changes v is v, whatever its decay: w - tau v are the weights of tau updates
        ago.
        """
        share, average, velocity = correction_share(0.135, 3.5), 0.25, 0.25
        average = share * average + (1 - share) * velocity
        assert 10 * velocity - 3.5 * average == pytest.approx((10 - 3.5) * velocity)


class TestLargeMinibatches:
    def test_the_linear_scaling_rule_and_its_warm_up(self) -> None:
        """8,192 images: 3.2. Five epochs of 156.25 iterations: each adds 0.003968."""
        rate = scaled_rate(0.1, 256, 8192)
        assert rate == pytest.approx(3.2)
        warm = Learning(rate=rate, start=0.1, warm_up=781)
        assert warm.rate_at(0) == 0.1
        assert warm.rate_at(1) - warm.rate_at(0) == pytest.approx(0.003968, abs=2e-6)
        assert warm.rate_at(781) == warm.rate_at(10**6) == rate

    def test_momentum_is_corrected_when_the_rate_changes(self) -> None:
        """With the rate inside the velocity: v <- mu (new / old) v + new g."""
        warm = Learning(rate=0.4, start=0.1, warm_up=3, momentum=0.9, corrected=True)
        assert warm.velocity_factor(1) == pytest.approx(0.9 * 0.2 / 0.1)
        assert warm.velocity_factor(0) == warm.velocity_factor(9) == 0.9
