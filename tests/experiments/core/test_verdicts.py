"""The rule of verdicts, word by word: a speed-up of 1.5 that ours is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core.figures import Figure
from experiments.core.paper import Claim
from experiments.core.verdicts import figure_in_words, judge


def claim(**values: Any) -> Claim:
    said: dict[str, Any] = {"id": "c", "text": "t", "where": "w", "value": 1.5, "neutral": 1.0}
    return Claim(**{**said, "figure": "a.step_time / b.step_time", **values})


def word(ours: float, *varied: float | None, **values: Any) -> str:
    around = [None if one is None else Figure(one) for one in varied]
    return judge(claim(**values), Figure(ours), around).verdict


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (1.36, "reproduced"),
        (1.34, "direction only"),
        (1.7, "direction only"),
        (1.17, "direction only"),
        (1.16, "not reproduced"),
        (0.9, "not reproduced"),
        (float("nan"), "not reproduced"),
    ],
)
def test_a_third_of_the_effect_is_the_least_that_a_direction_needs(ours: float, expected: str) -> None:
    """Of the effect of 0.5 a third is 0.167: 1.16 has the sign, and is not reproduced."""
    assert word(ours) == expected


def test_without_a_value_of_no_effect_there_is_no_direction() -> None:
    assert word(1.3, neutral=None) == "not reproduced"


@pytest.mark.parametrize(
    ("ours", "varied", "free", "expected"),
    [
        (1.5, (1.4, 1.6), ("batch",), "reproduced by proxy"),
        (1.5, (1.3, 1.5), ("batch",), "direction only"),
        (1.5, (0.99, 1.5), ("batch",), "not reproduced"),
        (1.5, (None, 1.5), ("batch",), "not reproduced"),
        (1.5, (), (), "direction only"),
        (1.3, (), ("batch",), "direction only"),
    ],
)
def test_a_stand_in_counts_where_half_and_double_meet_the_claim_too(
    ours: float, varied: tuple[float, ...], free: tuple[str, ...], expected: str
) -> None:
    """The surprise: one that meets it only where it stands does not even keep its direction."""
    assert word(ours, *varied, proxy="a small one", free=free) == expected


def test_what_was_measured_needs_an_interval_beyond_noise() -> None:
    """1.45 lies in the band; its interval holds 1, so it is not even a direction."""
    noisy = claim()
    assert judge(noisy, Figure(1.45, 1.2, 1.7), noisy=True).verdict == "reproduced"
    within = judge(noisy, Figure(1.45, 0.98, 1.92), noisy=True)
    assert (within.verdict, within.low) == ("not reproduced", 0.98)
    assert within.reason == "no difference seen: the 95% interval, 0.98 to 1.92, holds 1"
    assert figure_in_words(noisy, within) == "no difference seen"
    assert figure_in_words(noisy, judge(noisy, Figure(1.45, 1.2, 1.7), noisy=True)) == "1.45"
    assert judge(noisy, Figure(1.25, 1.1, 1.4), noisy=True).verdict == "direction only"
    assert judge(noisy, Figure(1.25, 0.9, 1.6), noisy=True).verdict == "not reproduced"
    assert "without an interval" in judge(noisy, Figure(1.5), noisy=True).reason


def test_a_claim_of_no_effect_has_its_whole_interval_in_the_band() -> None:
    same = claim(value=1.0, no_effect=True, tolerance=0.05)
    assert judge(same, Figure(1.01, 0.98, 1.04)).verdict == "reproduced"
    assert judge(same, Figure(1.01, 0.9, 1.12)).verdict == "not reproduced"
    assert judge(same, Figure(1.2)).verdict == "not reproduced"


def test_a_bound_is_met_on_its_side_however_far() -> None:
    assert word(7.0, bound="at least") == "reproduced"
    assert word(1.36, bound="at least") == "reproduced"
    assert word(1.34, bound="at least") == "direction only"
    assert word(1.7, bound="at most", neutral=None) == "not reproduced"


def test_a_row_that_constants_were_fitted_on_is_fitted_however_near() -> None:
    assert word(1.5, fitted=True) == word(3.0, fitted=True) == "fitted"


def test_an_identity_and_a_fit_are_words_of_their_own_where_they_hold() -> None:
    assert word(1.5, identity="halves of three") == "identity"
    assert word(0.5, identity="halves of three") == "not reproduced"
    fits: dict[str, Any] = {"value": 1.0, "neutral": 0.0, "tolerance": 0.0, "figure": "ours.feasible"}
    assert (word(1.0, **fits), word(0.0, **fits)) == ("fits", "not reproduced")
    forms = {"figure": "ours.value", "forms": {"ours": {"form": "f"}}}
    assert word(1.5, **forms) == "identity"
