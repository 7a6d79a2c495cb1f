"""What two interleaved series of times say: noise, speed-up, and when compiling pays back."""

import pytest

pytest.importorskip("torch")

from experiments.compilation.live.timing import Comparison, Sample, compare

pytestmark = pytest.mark.torch


def test_ten_seconds_of_compiling_are_won_back_after_ten_calls() -> None:
    """One second against two; quartiles that touch are noise, and a slower result never pays back."""
    ours = Sample(1.0, 0.9, 1.1, 5, 0.9)
    clear = Comparison(ours, Sample(2.0, 1.9, 2.1, 5, 1.9), load=0.5)
    assert (clear.speedup, clear.break_even(10.0), clear.inside_the_noise) == (2.0, 10.0, False)
    noisy = Comparison(ours, Sample(1.2, 1.1, 2.1, 5, 1.0), load=9.0)
    assert (noisy.break_even(10.0), noisy.inside_the_noise) == (None, True)
    slower = Comparison(ours, Sample(0.5, 0.4, 0.6, 5, 0.4), load=0.5)
    assert (slower.break_even(10.0), slower.inside_the_noise) == (None, False)


def test_neither_always_comes_first_after_two_calls_that_warm_up() -> None:
    seen: list[str] = []
    found = compare(lambda: seen.append("ours"), lambda: seen.append("eager"), "cpu", seconds=0.0)
    assert seen[:4] == ["ours", "eager"] * 2
    assert seen[4:] == ["ours", "eager", "eager", "ours"] * 2 + ["ours", "eager"]
    assert found.ours.calls == found.eager.calls == 5
    assert found.ours.lower <= found.ours.median <= found.ours.upper
    assert found.load >= 0
