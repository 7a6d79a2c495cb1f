"""Chronus-like leases: who is accepted, who has which lease, and who takes the rest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import Machines
from experiments.cluster.policies.chronus.leases import LeasedJob, earliest_first, lease_out, solve
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.test_policies import ends, stays
from tests.experiments.cluster.traces import jobs

ONE = Machines.of_sizes([1])


def due(trace: JobTrace, *deadlines: float) -> JobTrace:
    return replace(trace, deadline=np.array(deadlines))


def test_of_two_jobs_that_need_two_of_three_leases_one_is_accepted() -> None:
    """Card 23: leases of 10 s, A and B with 20 s by 30 s; the other is best effort and ends at 40."""
    trace = due(jobs((0, 1, 20), (0, 1, 20)), 30, 30)
    assert sorted(ends(trace, ONE, "chronus", lease=10.0)) == [20, 40]


def test_the_last_lease_may_end_early() -> None:
    """25 s need three leases of 10 s, and are done 25 s after the first begins."""
    assert LeasedJob.of(0, 1, 25.0, 25.0, 10.0).until == 3
    assert LeasedJob.of(0, 1, 25.0, 24.0, 10.0).until == 2
    assert LeasedJob.of(0, 1, 20.0, 39.0, 10.0).until == 3


def test_three_short_jobs_are_accepted_rather_than_the_one_that_is_due_first() -> None:
    long, short = LeasedJob(0, 1, 3, 3), [LeasedJob(job, 1, 1, 4) for job in (1, 2, 3)]
    assert earliest_first([long, *short], 1).accepted == (0, 1)
    assert lease_out([long, *short], 1).accepted == (1, 2, 3)


def test_a_job_that_was_promised_is_not_given_up_for_others() -> None:
    long, short = LeasedJob(0, 1, 3, 3, sure=True), [LeasedJob(job, 1, 1, 4) for job in (1, 2, 3)]
    assert 0 in lease_out([long, *short], 1).accepted


def test_a_lease_is_kept_to_its_end_and_best_effort_jobs_go_shortest_first() -> None:
    """B is due at 25 s and comes within the lease of A, which has no deadline; C is shorter than A."""
    trace = due(jobs((0, 1, 30), (3, 1, 10), (4, 1, 5)), np.nan, 25, np.nan)
    found = stays(trace, ONE, "chronus", lease=10.0)
    assert found == [("0", 0, 10), ("0", 25, 45), ("1", 10, 20), ("2", 20, 25)]


small = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4)


def most_accepted(cast: Sequence[LeasedJob], gpus: int) -> int:
    """By trying everything: the most jobs that can all have their leases."""
    best = 0
    for chosen in itertools.product(
        *([None, *itertools.combinations(range(job.until), job.needs)] for job in cast)
    ):
        used = [0] * 4
        for job, places in zip(cast, chosen, strict=True):
            for place in places or ():
                used[place] += job.gpus
        if max(used) <= gpus:
            best = max(best, sum(places is not None for places in chosen))
    return best


@settings(max_examples=40)
@given(rows=small, gpus=st.integers(1, 2))
def test_the_program_accepts_as_many_as_can_be(rows: list[tuple[int, int, int]], gpus: int) -> None:
    cast = [LeasedJob(job, *row) for job, row in enumerate(rows)]
    found = solve(cast, gpus)
    assert found is not None
    assert len(found.accepted) == most_accepted(cast, gpus)
    assert sum(cast[job].gpus for job in found.now) <= gpus
