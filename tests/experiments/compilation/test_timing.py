"""What interleaved series of times say (noise, speed-up, when compiling pays back), and how they
are taken.
"""

import pytest

pytest.importorskip("torch")

from experiments.compilation.live.timing import (
    Comparison,
    Sample,
    compare,
    in_turns,
    mean_seconds,
    time_repeats,
)

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


def test_three_things_take_turns_in_both_orders_and_warm_up_rounds_do_not_count() -> None:
    """A takes 100 s in both warm-up rounds, then 1, 2, 3, 4, 5: median 3, quartiles 1.5 and 4.5."""
    seen: list[str] = []
    seconds = iter((100.0, 100.0, 1.0, 2.0, 3.0, 4.0, 5.0))

    def taken(name: str) -> float:
        seen.append(name)
        return next(seconds) if name == "a" else 7.0

    found = in_turns({name: lambda name=name: taken(name) for name in "abc"}, rounds=5)  # type: ignore[misc]
    assert "".join(seen) == "abc" * 2 + "abc" + "cba" + "abc" + "cba" + "abc"
    assert found["a"] == Sample(3.0, 1.5, 4.5, 5, 1.0)
    assert found["b"] == Sample(7.0, 7.0, 7.0, 5, 7.0)


def test_calls_are_repeated_until_they_last_long_enough_on_the_given_clock() -> None:
    """One call takes 2 s, so 5 s need two; those take 3 s and 9 s by the clock: 1.5 and 4.5 s a call."""
    calls: list[int] = []
    clock = iter((0.0, 2.0, 10.0, 13.0, 20.0, 29.0))
    found = time_repeats(lambda: calls.append(1), "cpu", 2, 5.0, lambda: next(clock))
    assert found == [1.5, 4.5]
    assert len(calls) == 1 + 2 + 2
    assert mean_seconds(lambda: None, "cpu", 4, iter((0.0, 8.0)).__next__) == 2.0
