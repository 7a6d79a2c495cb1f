"""Ranges from batches: every rule on data whose answer is known."""

import numpy as np
import pytest

from experiments.compilation.planning.numerics.calibration import (
    RULES,
    ClippingRange,
    Entropy,
    Histogram,
    LeastSquares,
    MovingAverage,
    observer,
)
from experiments.core.errors import BadInput


def test_codes_of_a_range() -> None:
    assert ClippingRange(-1.0, 2.0).scale(8, symmetric=False) == (pytest.approx(3 / 255), 85 - 128)
    assert ClippingRange(-6.35, 2.0).scale(8, symmetric=True) == (pytest.approx(0.05), 0)
    assert ClippingRange(0.0, 0.0).scale(8, symmetric=True) == (1.0, 0)


def test_extremes_include_zero_and_every_batch() -> None:
    seen = observer("min_max")
    seen.observe(np.array([2.0, 3.0]))
    assert seen.range() == ClippingRange(0.0, 3.0)
    seen.observe(np.array([-1.0, 5.0]))
    assert seen.range() == ClippingRange(-1.0, 5.0)


def test_a_moving_average_takes_a_hundredth_of_the_news() -> None:
    seen = MovingAverage()
    seen.observe(np.array([-1.0, 1.0]))
    seen.observe(np.array([-1.0, 101.0]))
    assert seen.range() == ClippingRange(-1.0, pytest.approx(2.0))


def test_a_histogram_loses_nothing_when_it_widens() -> None:
    seen = Histogram()
    for scale in (0.0, 1.0, 3.0, 50.0):
        seen.observe(scale * np.linspace(-1, 1, 101))
    assert seen.counts.sum() == 3 * 101  # the batch of zeros had no width to stand in
    assert seen.limit == 64.0
    assert seen.observed_range.high == pytest.approx(50, abs=64 / 2048)


def test_one_wild_value_in_a_million_moves_extremes_but_no_other_rule() -> None:
    generator = np.random.default_rng(1)
    batches = [generator.normal(size=10_000) for _ in range(32)]
    batches[5][0] = 1000.0
    highest = {}
    for rule in RULES:
        seen = observer(rule, bits=8)
        for batch in batches:
            seen.observe(batch)
        highest[rule] = seen.range().high
    assert highest["min_max"] == 1000.0
    # 0.01 x 1000 comes in once and fades with 0.99 a batch.
    assert 4 < highest["moving_average"] < 14
    # The 99.995th percentile of N(0, 1) is 3.9; a bin is half a unit wide once the limit is a thousand.
    assert highest["percentile"] == pytest.approx(3.9, abs=1.0)
    assert highest["entropy"] < 200


def test_least_squares_clips_what_pays_and_nothing_else() -> None:
    uniform = LeastSquares(bits=8)
    uniform.observe(np.linspace(-1, 1, 100_001))
    assert uniform.range().high == pytest.approx(1.0, abs=0.02)
    normal = LeastSquares(bits=4)
    normal.observe(np.random.default_rng(0).normal(size=200_000))
    # The optimal clip of a Gaussian at 4 bits is 2.55 standard deviations (Banner et al., NeurIPS 2019, table
    # 1).
    assert normal.range().high == pytest.approx(2.55, abs=0.25)


def test_entropy_keeps_all_of_an_even_spread() -> None:
    seen = Entropy()
    seen.observe(np.linspace(0, 1, 100_001))
    assert seen.range() == ClippingRange(0.0, pytest.approx(1.0, abs=0.01))


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(BadInput, match="guess"):
        observer("guess")
