"""Columns of jobs and requests, and what a tuner wrote: orders, prefixes and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.requests import RequestTrace
from experiments.workloads.tuning_log import LoggedKnob, LoggedTask, TuningLog, best_so_far


def trace(job: tuple[str, ...], submit: list[float], **columns: Any) -> JobTrace:
    count = len(job)
    return JobTrace.from_columns(
        name="jobs",
        job=job,
        submit=np.array(submit),
        gpus=np.arange(1, count + 1),
        service=np.arange(count) * 10.0,
        deadline=np.full(count, np.nan),
        model=tuple(f"m{i}" for i in range(count)),
        tenant=("",) * count,
        **columns,
    )


def test_jobs_of_one_moment_stand_by_number_not_by_text() -> None:
    """9 comes before 10; as words it would not."""
    jobs = trace(("10", "9", "2"), [5.0, 5.0, 7.0], original={"row": ("a", "b", "c")})
    assert jobs.job == ("9", "10", "2")
    assert jobs.gpus.tolist() == [2, 1, 3] and jobs.model == ("m1", "m0", "m2")
    assert jobs.original == {"row": ("b", "a", "c")}, "the file's own columns go along"


def test_one_name_among_numbers_makes_all_of_them_words() -> None:
    assert trace(("10", "9", "x"), [5.0, 5.0, 5.0]).job == ("10", "9", "x")


@given(st.permutations(range(6)))
def test_the_order_of_a_file_means_nothing(order: list[int]) -> None:
    submit = [3.0, 1.0, 1.0, 2.0, 3.0, 0.0]
    jobs = trace(tuple(str(i) for i in order), [submit[i] for i in order])
    assert jobs.job == ("5", "1", "2", "3", "0", "4")


def test_the_first_jobs_keep_all_their_columns() -> None:
    jobs = trace(("1", "2", "3"), [0.0, 1.0, 2.0], original={"row": ("a", "b", "c")}).first(2)
    assert len(jobs) == 2 and jobs.original == {"row": ("a", "b")}
    assert jobs.service.tolist() == [0.0, 10.0]


def test_jobs_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="appears twice"):
        trace(("1", "1"), [0.0, 1.0])
    jobs = trace(("1", "2"), [0.0, 1.0])
    columns = (jobs.gpus, jobs.service, jobs.deadline, jobs.model, jobs.tenant)
    with pytest.raises(BadInput, match="not sorted"):
        JobTrace("late", jobs.job, jobs.submit[::-1], *columns)
    with pytest.raises(BadInput, match="differ in length"):
        JobTrace("short", jobs.job, jobs.submit[:1], *columns)


def requests(arrival: list[float], prompt: list[int], output: list[int]) -> RequestTrace:
    return RequestTrace(
        "requests", np.array(arrival), np.array(prompt), np.array(output), ("",) * len(arrival)
    )


def test_requests_that_cannot_be() -> None:
    assert len(requests([0.0, 0.0], [1, 5], [1, 1])) == 2
    for wrong, what in (
        (([1.0, 0.0], [1, 1], [1, 1]), "not sorted by arrival"),
        (([0.0, 1.0], [1, 0], [1, 1]), "no prompt or no output"),
        (([0.0, 1.0], [1, 1], [1, 0]), "no prompt or no output"),
        (([0.0, 1.0], [1], [1, 1]), "differ in length"),
    ):
        with pytest.raises(BadInput, match=what):
            requests(*wrong)


def test_the_best_so_far_starts_at_the_first_valid_trial() -> None:
    nan = float("nan")
    found = best_so_far(np.array([nan, 3.0, nan, 5.0, 2.0]))
    assert np.isnan(found[0]) and found[1:].tolist() == [3.0, 3.0, 3.0, 2.0]


@given(st.lists(st.one_of(st.just(float("nan")), st.floats(0.001, 10)), max_size=12))
def test_the_best_so_far_is_the_least_of_what_was_seen(seconds: list[float]) -> None:
    for place, least in enumerate(best_so_far(np.array(seconds))):
        seen = [value for value in seconds[: place + 1] if value == value]
        assert least == min(seen) if seen else np.isnan(least)


def test_a_log_counts_records_with_a_time() -> None:
    def task(name: str, *seconds: float) -> LoggedTask:
        count = len(seconds)
        zeros = np.zeros(count, np.int64)
        knob = LoggedKnob("tile", ((1, 8), (2, 4)))
        digits = np.zeros((count, 1), np.int64)
        return LoggedTask(
            name, "conv2d", "cuda", (knob,), digits, np.array(seconds), zeros, zeros * 1.0, zeros
        )

    log = TuningLog("log", "autotvm", (task("a", 1.0, float("nan")), task("b", float("nan"), 2.0, 3.0)))
    assert (len(log), log.valid) == (5, 3)
    assert [(len(task), task.valid) for task in log.tasks] == [(2, 1), (3, 2)]
