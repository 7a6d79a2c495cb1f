"""The parts of the tuners against figures that can be worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.tuning import Digits, Floats, ScheduleKnob, ScheduleSpace
from experiments.compilation.planning.tuning.annealing import (
    Annealing,
    accept_probability,
    anneal,
    diverse,
    temperature,
)
from experiments.compilation.planning.tuning.schedules import factorizations
from experiments.compilation.planning.tuning.sketches import SketchStage, derive
from experiments.compilation.planning.tuning.trees import average_recall, pairwise, weighted_square
from experiments.compilation.policies.ansor.evolution import chances, moved_factor
from experiments.compilation.policies.ansor.task_scheduler import Standing, gradient, next_task
from experiments.compilation.policies.autotvm import discount

RNG = np.random.default_rng(0)


def numbers(*sizes: int) -> ScheduleSpace:
    return ScheduleSpace(tuple(ScheduleKnob(f"k{i}", tuple(range(size))) for i, size in enumerate(sizes)))


class TestSpace:
    def test_a_point_is_a_mixed_radix_number(self) -> None:
        space = numbers(3, 5, 2)
        assert space.size == 30
        assert space.config(1 + 3 * 4 + 15 * 1) == {"k0": 1, "k1": 4, "k2": 1}
        assert space.index({"k0": 1, "k1": 4, "k2": 1}) == 28

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 2**32))
    @settings(max_examples=40)
    def test_digits_and_points_are_one_to_one_in_spaces_of_any_size(
        self, sizes: list[int], seed: int
    ) -> None:
        space = numbers(*sizes)  # up to 50^20, far beyond 64 bits
        digits = space.random_digits(8, np.random.default_rng(seed))
        points = space.indices(digits)
        assert all(0 <= point < space.size for point in points)
        assert (space.digits(points) == digits).all()

    def test_fresh_points_never_repeat_and_run_out_cleanly(self) -> None:
        space = numbers(4, 4)
        first = space.fresh(10, set(), RNG)
        rest = space.fresh(10, set(first), RNG)
        assert sorted(first + rest) == list(range(16))
        assert space.fresh(1, set(range(16)), RNG) == []


class TestFactorizations:
    @given(st.integers(1, 720), st.integers(1, 4))
    @settings(max_examples=60)
    def test_every_one_multiplies_to_the_extent(self, extent: int, parts: int) -> None:
        found = factorizations(extent, parts)
        assert all(math.prod(lengths) == extent and lengths[-1] <= 64 for lengths in found)
        assert len(set(found)) == len(found)

    def test_a_power_of_two_has_as_many_as_there_are_ways_to_share_its_exponent(self) -> None:
        assert len(factorizations(64, 4)) == math.comb(6 + 3, 3)
        assert len(factorizations(1024, 3, innermost=1024)) == math.comb(10 + 2, 2)
        assert factorizations(67, 2) == ((67, 1),), "a prime above the limit stays outside"

    def test_a_mutation_moves_a_factor_and_keeps_the_product(self) -> None:
        lengths: tuple[int | str, ...] = (4, 1, 6, 2)
        for _ in range(50):
            moved = moved_factor(lengths, RNG)
            assert isinstance(moved, tuple)
            assert math.prod(map(int, moved)) == 48
            assert moved != lengths


class TestAnnealing:
    def test_a_worse_point_is_accepted_with_exp_of_the_loss_over_the_temperature(self) -> None:
        loss = np.array([-0.2])
        assert accept_probability(loss, 1.0)[0] == pytest.approx(0.819, abs=5e-4)
        assert accept_probability(loss, 0.1)[0] == pytest.approx(0.135, abs=5e-4)

    def test_the_temperature_reaches_zero_where_nothing_worse_is_accepted(self) -> None:
        assert (temperature(0, 500), temperature(499, 500), temperature(0, 1)) == (1.0, 0.0, 1.0)
        assert accept_probability(np.array([-1e-9, 0.0, 1.0]), 0.0).tolist() == [0.0, 1.0, 1.0]

    def test_it_finds_the_top_of_a_smooth_hill_in_a_space_too_large_to_look_through(self) -> None:
        space = numbers(*[32] * 5)

        def score(digits: Digits) -> Floats:
            return np.asarray(-np.abs(digits - 17).sum(axis=1), dtype=np.float64)

        best, walkers = anneal(
            space, score, 8, {space.indices(np.full((1, 5), 17))[0]}, RNG, Annealing(steps=400)
        )
        assert len(set(best)) == 8
        assert score(space.digits(best)).tolist() == [-1.0] * 8, (
            "the top itself was taken, its neighbors are next"
        )
        assert walkers.shape == (128, 5)

    def test_picks_are_diverse_before_they_are_good(self) -> None:
        digits = np.array([[0, 0], [0, 0], [1, 1]])
        assert diverse(np.array([1.0, 0.9, 0.1]), digits, 2) == [0, 2]


class TestObjectives:
    def test_the_pairwise_gradient_pushes_the_better_of_two_up(self) -> None:
        gradient, hessian = pairwise(np.array([1.0, 0.0]), seed=0, partners=400)(np.zeros(2), 0)
        assert gradient[0] == -gradient[1] < 0
        assert -gradient[0] == pytest.approx(2 * hessian[0]), "at equal margins 1/2 against 1/4"

    def test_failures_alone_say_nothing(self) -> None:
        gradient, _ = pairwise(np.zeros(5), seed=0)(np.arange(5.0), 0)
        assert (gradient == 0).all()

    def test_a_program_is_the_sum_of_its_statements(self) -> None:
        objective = weighted_square(np.array([1.0, 0.5]), np.array([0, 0, 1]))
        gradient, hessian = objective(np.array([0.25, 0.25, 1.0]), 0)
        assert gradient.tolist() == [-0.5, -0.5, 0.25]
        assert hessian.tolist() == [1.0, 1.0, 0.5]

    def test_average_recall(self) -> None:
        labels = np.array([3.0, 2.0, 1.0])
        assert average_recall(labels, labels, 3) == 1.0
        # The best two are swapped: 0 of 1, 2 of 2, 3 of 3.
        assert average_recall(np.array([2.0, 3.0, 1.0]), labels, 3) == pytest.approx(2 / 3)

    def test_negative_scores_are_shifted_before_the_roulette(self) -> None:
        assert chances(np.array([-1.0, 0.0, 1.0])).tolist() == pytest.approx([0.0, 1 / 3, 2 / 3])
        assert chances(np.zeros(4)).tolist() == [0.25] * 4


def test_the_model_of_earlier_tasks_is_dropped_after_276_trials() -> None:
    assert discount(0) == 1.0
    assert discount(64) == 0.5
    assert discount(276) > 0.05
    assert discount(277) == 0.0


class TestTaskScheduler:
    def test_the_task_that_still_falls_goes_next_unless_the_other_is_called_more(self) -> None:
        a, b = Standing((20.0, 14.0, 11.0, 10.0)), Standing((5.0, 4.0))
        assert gradient(a, [a]) == pytest.approx(0.2 * (10 - 20) / 3 + 0.8 * (7.5 - 10))  # -2.667
        assert gradient(b, [b]) == pytest.approx(-1.6)
        assert next_task([a, b], RNG) == 0
        often = Standing((5.0, 4.0), weight=3.0)
        assert gradient(often, [often]) == pytest.approx(-4.8)
        assert next_task([a, often], RNG) == 1

    def test_a_slow_task_is_expected_to_come_near_a_similar_fast_one(self) -> None:
        fast, slow = Standing((1.0,), flops=8.0), Standing((10.0, 10.0, 10.0, 10.0), flops=8.0)
        # Twice the fast one's time is 2: less than 10 (1 - 1/4).
        assert gradient(slow, [fast, slow]) == pytest.approx(0.8 * (2.0 - 10.0))

    def test_warm_up_gives_each_task_a_round_and_exhausted_ones_leave(self) -> None:
        assert next_task([Standing((1.0,)), Standing(())], RNG) == 1
        assert next_task([Standing((9.0, 1.0), exhausted=True), Standing((1.0, 1.0))], RNG) == 1
        assert next_task([Standing((1.0,), exhausted=True)], RNG) is None

    def test_a_task_that_never_works_is_given_up(self) -> None:
        broken, fine = Standing((math.inf,) * 9), Standing((1.0, 1.0))
        assert next_task([broken, fine], RNG) == 0
        assert next_task([Standing((math.inf,) * 10), fine], RNG) == 1


class TestSketches:
    """The numbers of sketches that TVM's own tests expect, on four cores."""

    def test_a_product_has_three_and_two_more_where_only_its_sum_is_long(self) -> None:
        large = SketchStage("matmul", 512 * 512, 512, reuses=True)
        assert [s.keeps for s in derive([large], 4)] == ["fused-1", "fused-2", "tile"]
        flat = SketchStage("matmul", 8 * 8, 512, reuses=True)
        assert [s.keeps for s in derive([flat], 4)] == [
            "rfactor-outer",
            "rfactor-inner",
            "fused-1",
            "fused-2",
            "tile",
        ]

    def test_two_products_have_nine(self) -> None:
        stage = SketchStage("first", 512 * 512, 512, reuses=True)
        assert len(derive([stage, SketchStage("second", 512 * 512, 512, reuses=True)], 4)) == 9

    def test_a_softmax_divides_both_sums(self) -> None:
        stages = [
            SketchStage("max", 1, 1024),
            SketchStage("exp", 1024, inlinable=True),
            SketchStage("sum", 1, 1024),
            SketchStage("out", 1024),
        ]
        assert len(derive(stages, 4)) == 9
        assert {sketch.action_on("exp") for sketch in derive(stages, 4)} == {"inline"}

    def test_convolution_norm_and_activation_are_three(self) -> None:
        stages = [
            SketchStage("pad", 1 << 20),
            SketchStage("conv", 1 << 20, 4608, reuses=True),
            SketchStage("bias", 1 << 20, inlinable=True),
            SketchStage("relu", 1 << 20, inlinable=True),
        ]
        found = derive(stages, 4)
        assert len(found) == 3
        assert found[0].action_on("relu") == "skip", "the output is never inlined"
