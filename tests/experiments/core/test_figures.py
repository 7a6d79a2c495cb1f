"""Figures of claims: arithmetic over runs, and the interval of repeats."""

import pytest

from experiments.core.errors import BadInput
from experiments.core.figures import Figure, evaluate, mean_of_repeats


def test_a_figure_is_arithmetic_over_runs() -> None:
    metrics = {"a": {"t": 6.0}, "b": {"t": 2.0}}
    assert evaluate("1 - b.t / a.t", metrics) == pytest.approx(2 / 3)
    assert evaluate("-(a.t - b.t) * 2", metrics) == -8
    with pytest.raises(BadInput, match="not allowed"):
        evaluate("__import__('os')", metrics)
    with pytest.raises(KeyError, match="speed"):
        evaluate("a.speed", metrics)


def test_three_repeats_have_students_interval_and_one_has_none() -> None:
    """1, 2 and 3 deviate by 1: 2 +- 4.303 / sqrt(3), in which no effect at 0 lies."""
    found = mean_of_repeats([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.interval == pytest.approx((-0.484, 4.484), abs=1e-3)
    assert mean_of_repeats([2.0]) == Figure(2.0)
    ratios = mean_of_repeats([0.5, 1.0, 2.0], is_ratio=True)
    assert ratios.value == pytest.approx(1.0), "half and double are no difference"
    assert ratios.low == pytest.approx(1 / ratios.high), ratios
    assert mean_of_repeats([2.0]).interval == (2.0, 2.0)
