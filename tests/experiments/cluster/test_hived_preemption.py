"""HiveD's preemption that takes time: who is told to go, who may stay after all, and what is reserved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC
from tests.experiments.cluster.test_hived import run, stays
from tests.experiments.cluster.traces import jobs


class TestPreemptionThatTakesTime:
    def test_victims_run_on_while_their_preemptor_has_reserved_the_cells(self) -> None:
        trace = replace(
            jobs((0, 4, 100), (0, 4, 100), (10, 4, 20)),
            tenant=("x", "x", "a"),
            traits={"class": (OPPORTUNISTIC, OPPORTUNISTIC, GUARANTEED)},
        )
        found = stays(run(trace, virtual_clusters="a:4x1, b:4x1", preemption_grace=5))
        assert sorted(found) == [(0, 0, 15), (0, 35, 120), (1, 0, 100), (2, 15, 35)]

    def test_a_victim_that_ends_in_time_is_waited_for_no_longer(self) -> None:
        trace = replace(jobs((0, 4, 12), (10, 4, 20)), traits={"priority": np.array([0.0, 1.0])})
        plan = run(trace, Machines.of_sizes([4]), preemption_grace=5)
        assert stays(plan) == [(0, 0, 12), (1, 12, 32)]

    def test_a_higher_priority_cancels_a_preemptor_and_takes_its_reservation(self) -> None:
        """The victim still leaves by its own time; who was canceled begins to wait again."""
        priority = np.array([0.0, 1.0, 2.0])
        trace = replace(jobs((0, 4, 100), (10, 4, 20), (12, 4, 30)), traits={"priority": priority})
        plan = run(trace, Machines.of_sizes([4]), preemption_grace=5)
        assert stays(plan) == [(0, 0, 15), (2, 15, 45), (1, 45, 65), (0, 65, 150)]

    def test_a_victim_that_nobody_wants_away_any_more_stays(self) -> None:
        """Job 3 takes the half of job 0 from job 2, which had reserved all: job 1 stays until job 3 ends."""
        priority = np.array([0.0, 0.0, 1.0, 2.0])
        trace = jobs((0, 2, 100), (0, 2, 100), (10, 4, 20), (11, 2, 50))
        plan = run(replace(trace, traits={"priority": priority}), Machines.of_sizes([4]), preemption_grace=5)
        first = [(0, 0, 15), (0, 90, 175), (1, 0, 70), (1, 90, 120), (2, 70, 90), (3, 15, 65)]
        assert sorted(stays(plan)) == first

    def test_a_victim_whose_cell_is_gone_leaves_though_its_preemptor_was_canceled(self) -> None:
        """Job 2 takes the only cell from job 1, to node 1: on node 0 nobody waits for job 0's GPUs any more,
        but they are in no cell of its tenant's.
        """
        trace = replace(
            jobs((0, 2, 100), (10, 2, 20), (12, 2, 30)),
            tenant=("a",) * 3,
            traits={"priority": np.arange(3.0), "suggested_nodes": ("node-0", "node-0", "node-1")},
        )
        plan = run(trace, Machines.of_sizes([2, 2]), virtual_clusters="a:2x1", preemption_grace=5)
        assert sorted(stays(plan)) == [(0, 0, 15), (0, 62, 147), (1, 42, 62), (2, 12, 42)]

    def test_opportunistic_jobs_do_not_enter_what_is_reserved(self) -> None:
        """Job 1 leaves half the node at 12, which job 2 has reserved until job 0 is gone as well."""
        trace = replace(
            jobs((0, 2, 100), (0, 2, 12), (10, 4, 20), (11, 2, 5)),
            traits={"class": (OPPORTUNISTIC, OPPORTUNISTIC, GUARANTEED, OPPORTUNISTIC)},
        )
        plan = run(trace, Machines.of_sizes([4]), preemption_grace=5)
        assert sorted(stays(plan)) == [(0, 0, 15), (0, 35, 120), (1, 0, 12), (2, 15, 35), (3, 35, 40)]
