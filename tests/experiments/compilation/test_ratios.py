"""The interval of a median ratio, on ratios drawn from distributions whose median is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.compilation.live import ratios
from experiments.compilation.live.ratios import PLACEMENT, Ratio, confirm, ratio_of, speedup_metrics
from experiments.core.differences import is_unseen

pytestmark = pytest.mark.torch

Draw = Callable[[np.random.Generator, int], np.ndarray]


def around_one(generator: np.random.Generator, pairs: int) -> np.ndarray:
    """Seconds of two equal things, each interrupted for ten times as long in one call of five."""
    seconds = generator.lognormal(0.0, 0.1, (2, pairs)) * generator.choice(
        [1.0, 10.0], (2, pairs), p=[0.8, 0.2]
    )
    return np.asarray(seconds[0] / seconds[1])


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios, "RESAMPLES", 400)


def with_placement(low: float, median: float, high: float) -> tuple[float, float, float]:
    return low / (1 + PLACEMENT), median, high * (1 + PLACEMENT)


def seen(draw: Draw, pairs: int, times: int) -> int:
    generator = np.random.default_rng(pairs)
    return sum(ratio_of(draw(generator, pairs).tolist(), seed).is_seen for seed in range(times))


@pytest.mark.parametrize("pairs", [6, 7, 13, 40])
def test_equal_things_differ_in_at_most_one_of_twenty(pairs: int) -> None:
    """Of 200, ten and what chance adds to that: 18 or fewer in 99 of 100 cases."""
    assert seen(around_one, pairs, 200) <= 18


def test_a_fifth_more_is_seen_through_interruptions() -> None:
    assert seen(lambda generator, pairs: 1.2 * around_one(generator, pairs), 60, 40) >= 38


def test_the_median_of_few_pairs_lies_anywhere_between_them() -> None:
    """Of three pairs no interval is sure; of six it is the least and the greatest in 97 of 100 cases."""
    three, six = ratio_of([1.1, 1.2, 1.3], 0), ratio_of([1.1, 1.2, 1.3, 1.4, 1.5, 1.6], 0)
    assert (three.low, three.median, three.high, three.pairs) == (*with_placement(1.1, 1.2, 1.3), 3)
    assert (six.low, six.median, six.high) == pytest.approx(with_placement(1.1, 1.35, 1.6))
    assert ratio_of([1.1, 1.2, 1.3], 0) == three, "the same seed, the same interval"


def test_what_copies_of_one_thing_differ_by_is_no_difference_however_often_it_is_timed() -> None:
    assert not ratio_of([1.021] * 400, 0).is_seen
    assert not ratio_of([1 / 1.021] * 400, 0).is_seen
    assert ratio_of([1.05] * 400, 0).side == 1
    assert ratio_of([1 / 1.05] * 400, 0).side == -1


def test_a_difference_is_one_that_is_seen_twice_on_the_same_side() -> None:
    faster, both = Ratio(1.2, 1.1, 1.3, 6), Ratio(1.15, 1.05, 1.25, 12)
    assert confirm(faster, Ratio(1.1, 1.02, 1.2, 6), both) == both
    unseen = confirm(faster, Ratio(1.0, 0.98, 1.2, 6), both)
    assert (unseen.median, unseen.low, unseen.high, unseen.is_seen) == (1.15, 0.98, 1.3, False)
    assert not confirm(faster, Ratio(0.9, 0.8, 0.95, 6), both).is_seen, "slower the second time"


def test_a_speed_up_is_a_metric_with_its_ends() -> None:
    found = speedup_metrics(ratio_of([0.9, 1.1, 1.3, 0.8, 1.2, 1.0], 0))
    low, median, high = with_placement(0.8, 1.05, 1.3)
    assert found == {"speedup": median, "speedup_low": low, "speedup_high": high}
    assert is_unseen("speedup", found)
    assert not is_unseen("speedup", {"speedup": 1.02}), "stored before there were intervals"


def test_a_ratio_over_all_tasks_is_of_weighted_sums_round_by_round() -> None:
    """Two calls of 1 s and one of 4 s against 3 s and 6 s: 12 over 6 s in each of the nine rounds."""
    from experiments.compilation.live.timing import Rounds
    from experiments.compilation.live.tuning import rivals

    first = Rounds({"ours": [1.0] * 9, "torch": [3.0] * 9}, 0)
    second = Rounds({"ours": [4.0] * 9, "torch": [6.0] * 9}, 0)
    found = rivals._over_all([(2.0, first), (1.0, second)], ["torch", "torch"], 0)
    assert (found.low, found.median, found.high, found.pairs) == (*with_placement(2.0, 2.0, 2.0), 9)
