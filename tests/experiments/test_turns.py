"""Of several turns of a run the one whose error is the middle one, and how far apart they were."""

from __future__ import annotations

import pytest

from experiments.serving.experiment.measured import Turn
from experiments.validate.turns import middle_of, ranges_of


def turn(foretold: float, seen: float, first: float = 1.0) -> Turn:
    return Turn(
        {"latency_mean": foretold, "ttft_mean": 1.1 * first},
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


def test_what_nothing_foretells_has_no_error():
    lonely = Turn({}, {"latency_mean": 5.0}, ())
    figures, _ = middle_of([lonely, lonely])
    assert figures == {"latency_mean": {"predicted": None, "measured": 5.0, "error": None}}
    assert ranges_of([lonely])["error_range"] == {"latency_mean": []}
