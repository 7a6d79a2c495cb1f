"""The search for the highest load, where a limit is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.serving.planning.highest_rate import MOST_TRIALS, find_highest


@given(limit=st.floats(0.05, 200), start=st.floats(0.1, 10))
def test_the_limit_is_found_from_either_side_in_a_dozen_trials(limit: float, start: float) -> None:
    asked: list[float] = []

    def attains(load: float) -> bool:
        asked.append(load)
        return load <= limit

    found = find_highest(attains, start, precision=0.05)
    assert found <= limit and len(asked) <= MOST_TRIALS
    if 1 / 16 < limit / start < 16:
        assert found == pytest.approx(limit, rel=0.06)


def test_what_attains_nothing_has_no_rate() -> None:
    assert find_highest(lambda load: False) == 0
