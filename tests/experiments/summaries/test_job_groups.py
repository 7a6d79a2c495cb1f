"""What a trace's jobs are by time, size and owner: numbers that can be counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import jsonio
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reading
from experiments.readers.job_rows import merge_jobs
from experiments.summaries import summary
from experiments.summaries.demand import demand_of
from experiments.summaries.job_figures import name_step
from experiments.summaries.job_groups import MOST_SIZES, MOST_TENANTS, groups_of
from tests.experiments.summaries.test_demand import jobs

HOUR, DAY = 3600.0, 86400.0


def test_arrivals_are_counted_by_the_hour() -> None:
    """Three jobs in the first hour of ten, one in the fifth, one in the tenth; each of so many GPUs."""
    trace = jobs((7, 1, 1), (8, 2, 1), (9, 4, 1), (7 + 4 * HOUR, 8, 1), (7 + 9.5 * HOUR, 1, 1))
    found = groups_of(trace)["arrivals"]
    assert found == {
        "step": HOUR,
        "jobs": [3, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        "gpus": [7, *[0] * 3, 8, *[0] * 4, 1],
    }


@given(st.lists(st.floats(0, 4e9), min_size=1, max_size=30))
def test_every_arrival_is_counted_in_so_many_stretches_as_can_be_drawn(times: list[float]) -> None:
    found = groups_of(jobs(*((time, 1, 1.0) for time in sorted(times))))["arrivals"]
    assert sum(found["jobs"]) == len(times) and len(found["jobs"]) <= 1500


def test_a_day_has_its_rhythm_whose_hours_are_counted_as_often_as_they_were_there() -> None:
    """Two jobs at the start of each of three days, the last of which is one hour long."""
    rows = [(day * DAY + again, 1, 1.0) for day in range(3) for again in (0, 1)]
    found = groups_of(jobs(*rows))["day"]
    assert found == [2.0] + [0.0] * 23
    assert groups_of(jobs(*rows[:4]))["day"] == []


def test_sizes_say_what_their_jobs_take() -> None:
    rows = groups_of(jobs((0, 1, 10), (0, 1, 30), (1, 8, 5)))["sizes"]
    assert rows == [
        {"name": "1 GPU", "jobs": 2, "gpu_seconds": 40.0, "median": 20.0},
        {"name": "8 GPUs", "jobs": 1, "gpu_seconds": 40.0, "median": 5.0},
    ]


def test_many_sizes_are_told_between_powers_of_two() -> None:
    rows = groups_of(jobs(*((0, size, 1.0) for size in range(1, MOST_SIZES + 2))))["sizes"]
    names = ["1 GPU", "2 GPUs", "3 to 4 GPUs", "5 to 8 GPUs", "9 to 16 GPUs", "17 to 32 GPUs"]
    assert [(row["name"], row["jobs"]) for row in rows] == list(zip(names, (1, 1, 2, 4, 8, 1), strict=True))


def test_parts_of_gpus_add_up_and_jobs_without_any_want_none() -> None:
    """Two halves are one GPU for 10 s; a third job has processors alone."""
    trace = jobs((0, 1, 10), (0, 1, 10), (0, 0, 10))
    shared = replace(trace, traits={"gpu_share": np.array([0.5, 0.5, 1.0])})
    assert [(row["name"], row["jobs"]) for row in groups_of(shared)["sizes"]] == [
        ("no GPU", 1),
        ("part of a GPU", 2),
    ]
    assert (demand_of(shared)["gpu_seconds"], demand_of(shared)["peak"]) == (10, 1)


def test_the_largest_owners_are_told_and_the_others_together() -> None:
    count = MOST_TENANTS + 3
    trace = jobs(*((0, 1, float(number + 1)) for number in range(count)))
    named = replace(trace, tenant=tuple(f"t{number}" for number in range(count)))
    rows = groups_of(named)["owners"]
    assert groups_of(named)["owner"] == "tenant"
    assert [row["name"] for row in rows] == [f"t{count - 1 - place}" for place in range(MOST_TENANTS)] + [
        "3 others"
    ]
    assert (rows[-1]["jobs"], rows[-1]["gpu_seconds"], rows[-1]["median"]) == (3, 6.0, 2.0)
    by_user = groups_of(replace(trace, traits={"user": named.tenant}))
    assert (by_user["owner"], by_user["owners"]) == ("user", rows)


def test_a_trace_without_durations_or_owners_has_no_such_figures() -> None:
    trace = jobs((0, 1, 1), (HOUR, 2, 1))
    untimed = summary(replace(trace, service=np.full(2, np.nan)))
    assert [plot["title"] for plot in untimed["plots"]] == [
        "Jobs submitted, by minute",
        "GPUs that a job asks for",
    ]
    assert untimed["groups"]["sizes"][0]["gpu_seconds"] is None
    assert untimed["demand"] == {}
    jsonio.canonical(untimed)


def test_rows_left_out_are_told_by_reason_of_several_files_together() -> None:
    trace = replace(jobs((0, 1, 1)), facts={"jobs": 1, "left out": {"never started": 3}})
    other = replace(trace, facts={"left out": {"never started": 2, "have not ended": 1}})
    assert groups_of(trace)["left_out"] == {"never started": 3}
    both = merge_jobs([("a", Reading(trace)), ("b", Reading(other))], "both", WorkloadOptions()).value
    assert groups_of(both)["left_out"] == {"never started": 5, "have not ended": 1}


@pytest.mark.parametrize(
    ("step", "words"), [(60, "minute"), (900, "15 minutes"), (HOUR, "hour"), (7 * DAY, "7 days")]
)
def test_steps_have_names(step: float, words: str) -> None:
    assert name_step(step) == words
