"""Of several turns of a run the one whose error is the middle one, and how far apart they were."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.serving.experiment.measured import Turn
from experiments.validate.turns import middle_of, ranges_of


def turn(foretold: float, seen: float, first: float = 1.0, blind: float = 0.0, pace: float = 1.0) -> Turn:
    return Turn(
        {"latency_mean": foretold, "ttft_mean": 1.1 * first},
        {"latency_mean": blind or foretold},
        pace,
        {"latency_mean": seen, "ttft_mean": first, "requests": 60.0},
        (),
    )


def test_a_host_that_halved_its_pace_between_turns_is_no_error_of_what_foretold_each():
    """The middles of both columns by themselves would be 200 and 100, an error of 100 %."""
    turns = [turn(100, 100), turn(200, 205), turn(98, 100), turn(200, 210), turn(200, 100)]
    figures, metrics = middle_of(turns)
    assert figures["latency_mean"] == {"predicted": 98, "measured": 100, "error": pytest.approx(-0.02)}
    assert metrics == {"latency_mean": 100, "ttft_mean": 1.0, "requests": 60.0}


def test_each_figure_has_a_middle_turn_of_its_own():
    figures, _ = middle_of([turn(80, 100, 1.0), turn(100, 100, 2.0), turn(130, 100, 3.0)])
    assert figures["latency_mean"]["error"] == 0.0
    assert figures["ttft_mean"]["error"] == pytest.approx(0.1)


def test_the_least_and_the_largest_are_told_of_what_was_foretold_and_measured_and_of_the_error():
    found = ranges_of([turn(80, 100), turn(100, 50), turn(90, 60)])
    assert found["predicted_range"]["latency_mean"] == [80, 100]
    assert found["measured_range"]["latency_mean"] == [50, 100]
    assert found["error_range"]["latency_mean"] == [pytest.approx(-0.2), 1.0]


def test_what_is_foretold_without_the_meter_and_the_pace_are_told_next_to_it():
    turns = [turn(100, 100, blind=blind, pace=pace) for blind, pace in ((80, 1.2), (70, 1.4), (120, 0.8))]
    found = ranges_of(turns)
    assert found["blind_error"]["latency_mean"] == pytest.approx(-0.2)
    assert found["error_interval"]["latency_mean"] == [0.0, 0.0]
    assert found["pace_range"] == {"pace": [0.8, 1.4]}


def test_what_nothing_foretells_has_no_error():
    lonely = Turn({}, {}, 1.0, {"latency_mean": 5.0}, ())
    figures, _ = middle_of([lonely, lonely])
    assert figures == {"latency_mean": {"predicted": None, "measured": 5.0, "error": None}}
    assert ranges_of([lonely])["error_range"] == {"latency_mean": []}


@pytest.mark.parametrize(("turns", "outside"), [(1, 0), (4, 0), (5, 0), (8, 1), (21, 6), (25, 7)])
def test_the_middle_error_of_more_turns_lies_between_two_of_them(turns, outside):
    """The ranks of the sign test's tables for 90 %."""
    found = ranges_of([turn(100 + number, 100) for number in range(turns)])["error_interval"]
    assert found["latency_mean"] == pytest.approx([outside / 100, (turns - 1 - outside) / 100])


def test_the_interval_has_the_middle_error_of_nine_in_ten_drawn_hosts():
    """All turns share their short runs, whose own error stays in the middle one."""
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        short, run = rng.normal(size=26), rng.normal(size=25)
        errors = np.exp(0.1 * (short.mean() - run)) - 1
        low, high = ranges_of([turn(100 + 100 * error, 100) for error in errors])["error_interval"][
            "latency_mean"
        ]
        inside += low <= np.exp(0.1 * short.mean()) - 1 <= high
    assert 0.87 < inside / 400 < 0.99
