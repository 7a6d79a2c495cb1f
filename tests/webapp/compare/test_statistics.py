"""Repeats, differences and the front, with figures that a reader can work out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from webapp.compare.statistics import chance_of_ranks, difference, estimate, is_better, pareto_front


def test_repeats_fold_into_a_mean_and_its_interval() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert (found.n, found.mean) == (3, 2.0)
    # t(2, 97.5 %) = 4.302653, s = 1, so 4.302653 / sqrt(3).
    assert found.half_width == pytest.approx(2.484138, abs=1e-6)


def test_one_value_has_no_interval_and_equal_values_an_empty_one() -> None:
    assert estimate([5.0]).half_width is None
    assert estimate([5.0, 5.0]).half_width == 0.0
    found = estimate([123590.1, 123590.1, 123590.1])
    assert (found.mean, found.half_width) == (123590.1, 0.0)


@given(st.floats(1e-9, 1e12), st.integers(2, 9))
def test_runs_that_gave_the_same_have_no_interval_by_rounding(value: float, repeats: int) -> None:
    found = estimate([value] * repeats)
    assert (found.mean, found.half_width) == (value, 0.0)


def test_a_difference_is_relative_to_the_baseline() -> None:
    assert difference(15.0, 10.0) == 0.5
    assert difference(-5.0, -10.0) == 0.5
    assert difference(0.0, 0.0) == 0.0
    assert difference(1.0, 0.0) is None


def test_the_metric_says_what_is_better() -> None:
    assert is_better(-0.1, lower_is_better=True) is True
    assert is_better(-0.1, lower_is_better=False) is False
    assert is_better(-0.1, None) is None
    assert is_better(0.0, lower_is_better=True) is None


def test_the_front_holds_what_nothing_beats() -> None:
    memory_and_time = [(60.0, 1.0), (20.0, 3.0), (20.0, 2.5), (30.0, 2.0), (40.0, 2.2), (10.0, 9.0)]
    assert pareto_front(memory_and_time, (True, True)) == [5, 2, 3, 0]


def test_the_front_follows_each_direction() -> None:
    latency_and_throughput = [(1.0, 10.0), (2.0, 30.0), (3.0, 20.0)]
    assert pareto_front(latency_and_throughput, (True, False)) == [0, 1]


def test_equal_points_are_both_on_the_front() -> None:
    assert pareto_front([(1.0, 1.0), (1.0, 1.0), (1.0, 2.0)], (True, True)) == [0, 1]


figures = st.integers(-5, 5).map(float)


@given(st.lists(st.tuples(figures, figures), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_nothing_on_the_front_is_beaten_and_all_else_is(
    points: list[tuple[float, float]], lower_x: bool, lower_y: bool
) -> None:
    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        x, y = [(q - p) if lower else (p - q) for p, q, lower in zip(a, b, (lower_x, lower_y), strict=True)]
        return x >= 0 and y >= 0 and (x > 0 or y > 0)

    front = pareto_front(points, (lower_x, lower_y))
    expected = {i for i, b in enumerate(points) if not any(beats(a, b) for a in points)}
    assert set(front) == expected


def test_four_times_that_are_all_lower_are_seldom_chance_and_mixed_ones_often() -> None:
    """No pair of 16 the other way: 7.5 / sqrt(12) deviations; half of them so: none."""
    assert chance_of_ranks([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(0.0304, abs=1e-4)
    assert chance_of_ranks([1, 4, 5, 8], [2, 3, 6, 7]) == 1.0
    assert chance_of_ranks([3, 3, 3, 3], [3, 3, 3, 3]) == 1.0


times = st.lists(st.integers(0, 9), min_size=4, max_size=12)


@given(times, times)
def test_the_chance_of_ranks_is_that_of_scipy(first: list[float], second: list[float]) -> None:
    if len({*first, *second}) > 1:
        wanted = mannwhitneyu(first, second, method="asymptotic").pvalue
        assert chance_of_ranks(first, second) == pytest.approx(wanted)
