"""What times taken in rounds say (ratio, speed-up, when compiling pays back), and how they are taken."""

import threading
import time

import pytest

pytest.importorskip("torch")

import torch

from experiments.compilation.live.ratios import Ratio
from experiments.compilation.live.timing import (
    PROCESSOR,
    WALL,
    WARM_UP,
    Comparison,
    Rounds,
    Sample,
    choose_clock,
    compare,
    in_turns,
    mean_seconds,
    time_repeats,
)

pytestmark = pytest.mark.torch

ANY = Sample(1.0, 0.9, 1.1, 5, 0.9)


def comparison(low: float, middle: float, high: float, saved: float) -> Comparison:
    spent = {"ours": 3.0, "eager": 3.0 + saved}
    return Comparison(ANY, ANY, Ratio(middle, low, high, 5), WALL, spent, load=0.5)


def test_ten_processor_seconds_of_compiling_are_won_back_after_five_calls() -> None:
    """A call saves two of them; where the interval holds 1, or a call saves nothing, they never are."""
    clear = comparison(1.8, 2.0, 2.2, saved=2.0)
    assert (clear.speedup, clear.break_even(10.0), clear.inside_the_noise) == (2.0, 5.0, False)
    unseen = comparison(0.99, 1.2, 1.4, saved=2.0)
    assert (unseen.break_even(10.0), unseen.inside_the_noise) == (None, True)
    slower = comparison(0.4, 0.5, 0.6, saved=-2.0)
    assert (slower.break_even(10.0), slower.inside_the_noise) == (None, False)
    faster_on_more_threads = comparison(1.8, 2.0, 2.2, saved=-1.0)
    assert faster_on_more_threads.break_even(10.0) is None


def test_what_slows_a_whole_round_leaves_its_ratio_alone() -> None:
    """Quartiles overlap by far, and yet eager takes a fifth more in each round."""
    slow = [1.0, 9.0, 2.0, 7.0, 1.5, 8.0, 3.0, 1.1, 6.0, 2.5]
    rounds = Rounds({"ours": slow, "eager": [1.2 * seconds for seconds in slow]}, seed=0)
    ratio = rounds.ratio("eager", "ours")
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.2, 1.2 / 1.03, 1.2 * 1.03))
    ours, eager = rounds.sample("ours"), rounds.sample("eager")
    assert ours.lower <= eager.upper and eager.lower <= ours.upper


def test_the_order_of_each_round_is_drawn_from_the_seed() -> None:
    def seen(seed: int) -> str:
        said: list[str] = []
        in_turns({name: lambda name=name: said.append(name) or 1.0 for name in "ab"}, seed, rounds=40)  # type: ignore[misc]
        return "".join(said)[2 * WARM_UP :]

    assert seen(1) == seen(1) != seen(2)
    pairs = [seen(1)[place : place + 2] for place in range(0, 80, 2)]
    assert set(pairs) == {"ab", "ba"}, "each round takes both, neither always first"
    assert 10 <= pairs.count("ab") <= 30
    assert "abbaabba" * 5 != seen(1), "no order that repeats"


def test_warm_up_rounds_do_not_count() -> None:
    """A takes 100 s in both warm-up rounds, then 1, 2, 3, 4, 5: median 3, quartiles 1.5 and 4.5."""
    seconds = iter((100.0, 100.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    found = in_turns({"a": lambda: next(seconds), "b": lambda: 7.0}, seed=0, rounds=5)
    assert found.sample("a") == Sample(3.0, 1.5, 4.5, 5, 1.0)
    assert found.sample("b") == Sample(7.0, 7.0, 7.0, 5, 7.0)


def test_a_comparison_has_as_many_pairs_as_an_interval_needs() -> None:
    found = compare(lambda: None, lambda: None, "cpu", seed=0, seconds=0.0)
    assert found.ours.calls == found.eager.calls == found.ratio.pairs
    assert found.ratio.pairs in (6, 12), "as many again where the first seem to differ"
    assert found.ratio.low <= found.ratio.median <= found.ratio.high
    assert found.load >= 0


def test_a_thread_that_computes_alone_is_timed_by_its_processor_time() -> None:
    def alone() -> None:
        sum(range(20_000))

    def with_another() -> None:
        other = threading.Thread(target=lambda: sum(range(200_000)))
        other.start()
        other.join()

    assert choose_clock([alone, alone], "cpu") == PROCESSOR
    assert choose_clock([alone, with_another], "cpu") == WALL, "both sides by one clock"
    assert choose_clock([alone, lambda: time.sleep(0.005)], "cpu") == WALL, "waiting takes no processor"
    assert choose_clock([alone, alone], "cuda") == WALL


def test_eager_on_one_thread_is_alone_and_on_two_is_not() -> None:
    before, values = torch.get_num_threads(), torch.randn(256, 256)
    try:
        torch.set_num_threads(1)
        assert choose_clock([lambda: values @ values], "cpu") == PROCESSOR
    finally:
        torch.set_num_threads(before)


def test_calls_are_repeated_until_they_last_long_enough_on_the_given_clock() -> None:
    """One call takes 2 s, so 5 s need two; those take 3 s and 9 s by the clock: 1.5 and 4.5 s a call."""
    calls: list[int] = []
    clock = iter((0.0, 2.0, 10.0, 13.0, 20.0, 29.0))
    found = time_repeats(lambda: calls.append(1), "cpu", 2, 5.0, lambda: next(clock))
    assert found == [1.5, 4.5]
    assert len(calls) == 1 + 2 + 2
    assert mean_seconds(lambda: None, "cpu", 4, iter((0.0, 8.0)).__next__) == 2.0
