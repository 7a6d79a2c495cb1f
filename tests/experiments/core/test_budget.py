"""What bounds a search, and how it says where it is."""

from __future__ import annotations

import threading
import time

import pytest

from experiments.core.budget import Budget
from experiments.core.progress import forward_only, run_reporting

Reports = list[tuple[float, str]]


class Cancelled(Exception):
    pass


def test_a_search_takes_as_many_evaluations_as_there_are_and_says_that_more_were_refused() -> None:
    reports: Reports = []
    budget = Budget(2, lambda *report: reports.append(report), "plans")
    assert [budget.take() for _ in range(3)] == [True, True, False]
    assert reports == [(0.5, "1 of at most 2 plans"), (1.0, "2 of at most 2 plans")]
    assert budget.caveat("budget") == {
        "ended_at": "the search ended at its bound of 2 plans (knob budget) with the best so far"
    }


def test_a_search_that_ends_by_itself_at_its_last_evaluation_has_nothing_to_say() -> None:
    budget = Budget(2)
    assert budget.take(2) and budget.take(0) and budget.caveat("budget") == {}


def test_work_that_is_spent_at_once_may_overshoot_and_then_nothing_goes_on() -> None:
    budget = Budget(2)
    budget.spend(5)
    assert not budget.take(0) and budget.ended_early


def test_progress_never_goes_back_and_a_sign_of_life_repeats_the_last_step() -> None:
    reports: Reports = []
    progress = forward_only(lambda *report: reports.append(report))
    for fraction, step in ((0.5, "planning"), (0.0, ""), (0.2, "costs"), (0.7, "")):
        progress(fraction, step)
    assert reports == [(0.5, "planning"), (0.5, "planning"), (0.5, "costs"), (0.7, "costs")]


def test_a_solver_is_accompanied_until_it_answers() -> None:
    reports: list[int] = []

    def solve() -> int:
        time.sleep(0.5)
        return 7

    assert run_reporting(solve, lambda: reports.append(1)) == 7
    assert len(reports) >= 2


def test_what_a_solver_raises_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        run_reporting(lambda: 1 // 0, lambda: None)


def test_a_cancel_does_not_wait_for_the_solver() -> None:
    """The solver answers only once the cancel has been answered."""
    answered = threading.Event()

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        run_reporting(answered.wait, cancel)
    answered.set()
