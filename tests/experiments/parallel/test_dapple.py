"""DAPPLE's estimate by the pivot stage, its three ways to take devices, its stages, and its early backward
passes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.policies.dapple import Dapple
from experiments.parallel.policies.dapple.occupancy import (
    append_first,
    choices,
    devices,
    fresh_first,
    scatter_first,
)
from experiments.parallel.policies.dapple.pivot import latencies, pivots
from experiments.parallel.policies.dapple.shared_micro_batches import (
    accumulated_seconds,
    by_samples,
    shared_ways,
)
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.simulator import simulate
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate
from tests.experiments.parallel.test_pipedream import layers, link


def column(*values: float) -> np.typing.NDArray[np.float64]:
    return np.array(values, np.float64)[:, None]


def latency(forward: list[float], backward: list[float], reduce: list[float], micro_batches: int) -> float:
    return float(latencies(column(*forward), column(*backward), column(*reduce), micro_batches)[0])


def planned(model: LayerGraph, hardware: Hardware, batch: int, **knobs: object) -> ParallelPlan:
    plan = Dapple(**knobs).place(model, hardware, batch, estimate(model, hardware))  # type: ignore[arg-type]
    assert violations(plan, model, hardware) == []
    return plan


def test_the_estimate_judges_unless_the_simulator_is_asked() -> None:
    """Two machines of two devices, parameters that take 4 s on the way to a neighbor: the pipeline's estimate
    is less than data parallelism's, its simulated step is longer.
    """
    size = 2.0**25
    inside, between = Link("inside", size, 0.0, True, "test"), Link("between", size / 2, 0.0, True, "test")
    model = chain(3, parameter_bytes=4 * size, output_bytes=size / 1600)
    hardware = cluster(2, 2, link=inside, network=between)
    asked = estimate(model, hardware)
    by_paper = planned(model, hardware, 16, micro_batches=2)
    by_simulator = planned(model, hardware, 16, micro_batches=2, judge="simulator")
    assert [len(plan.stages) for plan in (by_paper, by_simulator)] == [2, 1]
    slow, fast = simulate(by_paper, asked).step_time, simulate(by_simulator, asked).step_time
    assert slow > fast == pytest.approx(56, rel=1e-5)


class TestEstimate:
    def test_equal_stages_wait_for_the_last(self) -> None:
        """Four forwards, seven rounds of 3 s, four backwards: 4 + 21 + 8."""
        assert latency([1] * 4, [2] * 4, [0] * 4, 8) == 33
        assert pivots(column(3, 3, 3, 3), 8).tolist() == [3]

    def test_an_all_reduce_adds_where_no_backward_hides_it(self) -> None:
        """The first stage reduces 5 s after the last backward, the last one 9 s overlapped with 6 s of
        backward: 4 + 21 + 13.
        """
        assert latency([1] * 4, [2] * 4, [5, 0, 0, 9], 8) == 38

    def test_the_slowest_stage_is_the_pivot(self) -> None:
        assert latency([2, 1, 1], [4, 2, 2], [0] * 3, 4) == 24
        assert pivots(column(6, 3, 3), 4).tolist() == [0]
        assert latency([1, 1, 2], [2, 2, 4], [0] * 3, 4) == 30

    def test_many_plans_at_once_are_as_many_alone(self) -> None:
        forward, backward = (
            np.array([[1.0, 2, 1], [1, 1, 1], [1, 1, 2]]),
            np.array([[2.0, 4, 2], [2, 2, 2], [2, 2, 4]]),
        )
        together = latencies(forward, backward, np.zeros((3, 3)), 4)
        alone = [latency(list(f), list(b), [0.0] * 3, 4) for f, b in zip(forward.T, backward.T, strict=True)]
        assert together.tolist() == alone


class TestOccupancy:
    def test_three_ways_to_take_two_devices(self) -> None:
        """Three machines of four; the first has one device in use."""
        assert fresh_first((1, 0, 0), 4, 2) == (1, 2, 0)
        assert append_first((1, 0, 0), 4, 2) == (3, 0, 0)
        assert scatter_first((1, 0, 0), 4, 2) == (1, 1, 1)
        assert choices((0,), 4, 2) == [(2,)]

    def test_devices_are_numbered_machine_by_machine(self) -> None:
        assert devices((1, 0, 0), (1, 1, 1), 4) == (4, 8)


class TestStages:
    def test_one_device_runs_everything(self) -> None:
        plan = planned(layers([4, 1], [0, 0]), cluster(1, 1), 4, micro_batches=4)
        assert plan.notes["predicted_step_time"] == pytest.approx(4 * 5)

    def test_without_parameters_replicas_divide_the_work(self) -> None:
        plan = planned(layers([4, 1], [0, 0]), cluster(4, 1), 32, micro_batches=8)
        assert plan.notes["predicted_step_time"] == pytest.approx(32 * 5 / 4)

    def test_parameters_that_are_dear_to_reduce_make_a_stage(self) -> None:
        """The second layer's parameters take 2 * 3/4 * 1000 s to reduce over all; alone on a
        device nothing.
        """
        model = layers([3, 1], [0, 1000])
        hardware = cluster(4, 1, network=link(1.0))
        plan = planned(model, hardware, 24, micro_batches=8)
        assert [(stage.begin, stage.end) for stage in plan.stages] == [(0, 1), (1, 2)]
        assert plan.notes["data_parallel_time"] > 1500 > plan.notes["predicted_step_time"]
        assert [worker.devices for worker in plan.workers] == [(0, 1, 2), (3,)]
        assert simulate(plan, estimate(model, hardware)).step_time == pytest.approx(
            plan.notes["predicted_step_time"]
        )

    def test_devices_take_whole_samples(self) -> None:
        """Six samples on four devices are two each, as on three; the fourth only adds to the sum's way."""
        assert [shared_ways(6, devices) for devices in (1, 2, 3, 4, 6, 8)] == [1, 2, 3, 3, 6, 6]
        model = layers([4, 1], [1e3, 0])
        cut = by_samples(estimate(model, cluster(4, 1)), range(2), 6, 4)
        assert [(one.compute, one.activations, one.parameters) for one in cut] == [(3, 3, 1), (3, 3, 1)]
        gradient = 1e3 / 4 * estimate(model, cluster(4, 1)).states.gradient
        assert [one.bytes for one in cut[0].backward] == [gradient]
        assert cut[1].backward == ()

    def test_data_parallelism_hides_sums_behind_its_backward_pass(self) -> None:
        """Two micro-batches of 2 + 4 s; the last block's sum of 3 s overlaps with 2 s of backward, the
        first's follows.
        """
        forward, backward = np.array([1.0, 1.0]), np.array([2.0, 2.0])
        assert accumulated_seconds(forward, backward, [5.0, 3.0], 2) == 2 * 2 + 4 + max(2 + 2, 2 + 3) + 5
        assert accumulated_seconds(forward, backward, [0.0, 1.0], 2) == 2 * 2 + 2 * 4

    def test_one_stage_is_data_parallelism(self) -> None:
        """In one micro-batch where memory allows, as fast as the policy of that name; in two where it does
        not.
        """
        model = layers([3, 3, 3], [3e7, 3e7, 3e7])
        hardware = cluster(2, 2, link=link(2e8), network=link(1e8))
        plan = planned(model, hardware, 32, micro_batches=8)
        usual = DataParallel().place(model, hardware, 32, estimate(model, hardware))
        assert (len(plan.stages), plan.micro_batches) == (1, 1)
        found = [simulate(one, estimate(model, hardware)).step_time for one in (plan, usual)]
        assert found[0] == pytest.approx(found[1])
        assert found[0] == pytest.approx(plan.notes["predicted_step_time"])
        states = 9e7 / 4 * estimate(model, hardware).states.total
        small = cluster(2, 2, memory=int(states + 4 * 3 + 1), link=link(2e8), network=link(1e8))
        assert planned(model, small, 32, micro_batches=8).micro_batches == 2

    def test_early_backward_bounds_what_is_held(self) -> None:
        """A straight pipeline of four: policy a holds 4, 3, 2, 1; b up to twice as many less one; both take
        33 s.
        """
        model = chain(4, parameter_bytes=4e12)
        hardware = cluster(4, 1, memory=10**30, network=Link("slow", 1.0, 0.0, True, "test"))
        for warm_up, live in (("a", [4, 3, 2, 1]), ("b", [7, 5, 3, 1])):
            plan = planned(model, hardware, 8, micro_batches=8, warm_up=warm_up)
            found = simulate(plan, estimate(model, hardware))
            assert plan.notes["predicted_step_time"] == pytest.approx(33)
            assert found.step_time == pytest.approx(33)
            assert [usage.live_micro_batches for usage in found.memory] == live

    def test_memory_limits_the_warm_up(self) -> None:
        """Each stage has memory for two micro-batches, so that no one holds more."""
        model = chain(4, parameter_bytes=4e3, stash_bytes=1e3)
        slow = Link("slow", 1e-9, 0.0, True, "test")
        states = 1e3 * estimate(model, cluster(4, 1)).states.total
        plan = planned(model, cluster(4, 1, memory=int(states + 2500), network=slow), 8, micro_batches=8)
        assert plan.notes["warm_up"] == [2, 2, 2, 1]

    def test_a_batch_that_does_not_divide_is_refused(self) -> None:
        with pytest.raises(BadInput, match="9 samples do not divide"):
            planned(layers([1], [0]), cluster(1, 1), 9, micro_batches=8)

    @settings(max_examples=25)
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=6),
        st.integers(1, 4),
        st.integers(1, 9),
        st.integers(1, 5),
        st.sampled_from("ab"),
    )
    def test_any_plan_runs_to_its_end(
        self, times: list[int], count: int, micro_batches: int, samples: int, warm_up: str
    ) -> None:
        model = layers([float(t) for t in times], [5.0] * len(times), 0.1)
        hardware = cluster(count, 2, link=link(10.0), network=link(1.0))
        plan = planned(model, hardware, samples * micro_batches, micro_batches=micro_batches, warm_up=warm_up)
        assert plan.notes["predicted_step_time"] <= plan.notes["data_parallel_time"]
        assert simulate(plan, estimate(model, hardware)).step_time > 0
