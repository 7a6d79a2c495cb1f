"""Horovod: which gradients share a buffer, when buffers leave, and what fusing gains."""

from __future__ import annotations

import pytest

from experiments.hardware import Link
from experiments.parallel.interface import violations
from experiments.parallel.policies.horovod import Horovod
from experiments.parallel.policies.horovod.fusion import Gradient, fuse
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

MEGABYTE = 1e6


def packed(
    gradients: list[Gradient], threshold: float, cycle: float, seconds: float = 0.0
) -> list[list[int]]:
    """What travels together where every reduction takes ``seconds``."""
    return [list(buffer.gradients) for buffer in fuse(gradients, threshold, cycle, lambda _: seconds)]


def test_thirty_forty_ten_and_five_of_another_type() -> None:
    """64 MB: 30 + 40 do not fit, 40 + 10 do, another type closes the second; nothing searches further for the
    10.
    """
    sizes = [Gradient(size * MEGABYTE) for size in (30, 40, 10)]
    half = Gradient(5 * MEGABYTE, "float16")
    assert packed([*sizes, half], 64 * MEGABYTE, 1.0) == [[0], [1, 2], [3]]
    assert packed([*sizes, half], 0, 1.0) == [[0], [1], [2], [3]]
    assert packed([*sizes, half], 1e9, 1.0) == [[0, 1, 2], [3]]


def test_what_is_ready_at_one_look_is_fused() -> None:
    """Ready at 1, 2 and 2.5: looks at 2 and 4, or at every moment, or at 1 and then only when a reduction of
    2 s ends.
    """
    gradients = [Gradient(1.0, ready=ready) for ready in (1.0, 2.0, 2.5)]
    assert packed(gradients, 10, 2.0) == [[0, 1], [2]]
    assert packed(gradients, 10, 0.0) == [[0], [1], [2]]
    assert packed(gradients, 10, 0.0, seconds=2.0) == [[0], [1, 2]]


def test_a_buffer_leaves_at_the_first_cycle_after_its_last_gradient() -> None:
    """Three layers of F=1, B=2 and 1 byte on two devices at 1 byte/s; gradients at 5, 7 and 9 s.

    A look every 4 s: one leaves at 8, at 12 the other two together, though the first ended at 9: 12 + 2.
    Always looking: buffers of one byte leave at once, and only the last second shows.
    """
    model = chain(3, parameter_bytes=1.0)
    hardware = cluster(1, 2, link=Link("slow", 1.0, 0.0, True, "test"))
    asked = estimate(model, hardware)

    def run(cycle: float) -> tuple[list[tuple[int, int]], list[float], float]:
        plan = Horovod(cycle=cycle).place(model, hardware, 2, asked)
        assert violations(plan, model, hardware) == []
        leaves = [row["leaves"] for row in plan.notes["buffers"]]
        return list(plan.synchronization.buckets), leaves, simulate(plan, asked).step_time

    assert run(4.0) == ([(1, 3), (0, 1)], [8, 12], 13)
    assert run(5.0) == ([(2, 3), (0, 2)], [5, 10], 12)
    assert run(0.0) == ([(2, 3), (1, 2), (0, 1)], [5, 7, 9], 10)


def test_fusing_saves_latency_where_gradients_are_many_and_small() -> None:
    """Four layers at once on two devices: latency 1 s a step, two steps a ring. Four rings of 2 s, or one."""
    model = chain(4, forward=0.0, backward=0.0, parameter_bytes=4.0)
    hardware = cluster(1, 2, link=Link("late", 1e30, 1.0, True, "test"))
    asked = estimate(model, hardware)
    step = [
        simulate(Horovod(fusion_bytes=size, cycle=1.0).place(model, hardware, 2, asked), asked).step_time
        for size in (0, 8, 16)
    ]
    assert step == pytest.approx([4 * 2, 2 * 2, 2])


def test_layers_without_parameters_belong_to_a_buffer_all_the_same() -> None:
    model, hardware = chain(3), cluster(1, 2)
    plan = Horovod().place(model, hardware, 2, estimate(model, hardware))
    assert plan.synchronization.buckets == ()
    assert violations(plan, model, hardware) == []
