"""What pages draw of a plan: nodes by time, jobs told in whole, distributions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import Machines
from experiments.cluster.simulator import (
    curves,
    executions_of,
    lives,
    occupancy,
    picture,
    simulate,
    told_jobs,
)
from experiments.core import registry
from tests.experiments.cluster.traces import jobs

TRACE = jobs((0, 2, 10), (1, 4, 5), (2, 1, 3))
TWO = Machines.of_sizes([2, 2])
PLAN = simulate(TRACE, TWO, registry.create("cluster", "fifo", {}))


def test_each_node_is_as_full_as_the_schedule_makes_it() -> None:
    """0 to 10 s one job on node 0, 10 to 15 s both nodes, 15 to 18 s one device."""
    found = occupancy(PLAN, TWO, 0.0)
    assert found is not None and found["rows"] == ["node-0", "node-1"]
    held, step = np.array(found["held"]), found["step"]
    assert step * held.shape[1] == pytest.approx(18)
    assert held.sum(axis=1) * step * 2 == pytest.approx([2 * 10 + 2 * 5 + 3, 2 * 5], rel=1e-2)
    first = held[:, : int(9.9 / step)]
    assert (first[0] == 1).all() and (first[1] == 0).all()


def test_many_nodes_share_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MOST_ROWS", 2)
    machines = Machines.of_sizes([1, 1, 1, 1, 1])
    plan = simulate(TRACE, machines, registry.create("cluster", "fifo", {}))
    found = occupancy(plan, machines, 0.0)
    assert found is not None
    assert found["rows"] == ["node-0 to node-2", "node-3 to node-4"]
    assert np.array(found["held"]).max() <= 1


def test_of_many_executions_some_jobs_are_told_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four jobs that take turns on one device; room for the executions of some of them."""
    trace = jobs(*((number, 1, 40) for number in range(4)))
    one = Machines.of_sizes([1])
    plan = simulate(trace, one, registry.create("cluster", "las", {"round_length": 10.0}))
    assert told_jobs(plan, trace)[1] == "every job"
    counts = np.bincount(plan.executions.job)
    monkeypatch.setattr(picture, "MOST_EXECUTIONS", int(counts.sum()) - 1)
    told, words = told_jobs(plan, trace)
    assert 0 < len(told) < 4 and words.startswith(f"{len(told)} of 4 jobs")
    rows = executions_of(plan, trace, one, told)
    assert len(rows) == counts[told].sum()
    assert [row[:3] for row in lives(plan, trace, told)["rows"]] == [
        [str(job), float(job), 1] for job in told
    ]


def test_distributions_by_size_and_deadlines_by_slack() -> None:
    found = curves(PLAN, TRACE, TWO)
    assert found["jct_distribution.1_gpu"].x == [16.0]
    assert found["jct_distribution.2_to_8_gpus"].x == [10.0, 14.0]
    assert found["fairness_distribution"].x_unit == ""
    trace = replace(TRACE, deadline=np.array([10.0, 30.0, 9.0]))  # 1, 5.8 and 2.33 times their service
    met = curves(PLAN, trace, TWO)["deadlines_met"]
    assert (met.x, met.y) == ([1.0, 2.0, 5.0], [1.0, 0.0, 1.0])
