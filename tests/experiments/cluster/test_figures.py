"""Figures and outcomes of cluster runs whose numbers can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.cluster.interface import Machines
from experiments.cluster.simulator import curves, figures, simulate
from experiments.core import jsonio, registry
from experiments.core.spec import Outcome, load_spec
from experiments.run import run
from tests.experiments.cluster.traces import jobs

TRACE = jobs((0, 2, 10), (1, 4, 5), (2, 1, 3))
FOUR, ONE = Machines.of_sizes([4]), Machines.of_sizes([1])
PLAN = simulate(TRACE, FOUR, registry.create("cluster", "fifo", {}))


def test_figures_of_three_jobs() -> None:
    found = figures(PLAN, TRACE, FOUR)
    assert found["avg_jct"] == pytest.approx((10 + 14 + 16) / 3)
    assert found["p50_jct"] == 14
    assert found["avg_queueing_delay"] == pytest.approx((0 + 9 + 13) / 3)
    assert found["makespan"] == 18
    assert found["utilization"] == found["gpu_allocation_ratio"] == pytest.approx((20 + 20 + 3) / (4 * 18))
    assert (found["preemptions"], found["unfinished_jobs"], found["jobs"]) == (0, 0, 3)


def test_restart_cost_holds_devices_without_using_them() -> None:
    trace = jobs((0, 1, 10), (2, 1, 3))
    plan = simulate(trace, ONE, registry.create("cluster", "srtf", {"restart_cost": 4.0}))
    found = figures(plan, trace, ONE)
    assert (found["utilization"], found["gpu_allocation_ratio"]) == (pytest.approx(13 / 17), 1.0)
    assert found["preemptions"] == 1


def test_unfairness_is_against_an_equal_share() -> None:
    """Two one-GPU jobs of 10 s share one GPU; the second waits 10 s and would have needed 15 s on its share.

    While it was there (0 to 20 s) there were 1.5 jobs on average, so its share is 2/3 GPU; 20 / 15 = 1.333.
    """
    trace = jobs((0, 1, 10), (0, 1, 10))
    plan = simulate(trace, ONE, registry.create("cluster", "fifo", {}))
    assert figures(plan, trace, ONE)["finish_time_fairness_max"] == pytest.approx(20 / 15)


def test_deadlines_count_over_the_jobs_that_have_one() -> None:
    """The third, without one, is a best-effort job; it takes 16 s."""
    trace = replace(TRACE, deadline=np.array([10.0, 14.0, np.nan]))
    assert figures(PLAN, trace, FOUR)["deadline_satisfaction"] == 0.5
    assert figures(PLAN, trace, FOUR)["best_effort_avg_jct"] == 16
    assert "deadline_satisfaction" not in figures(PLAN, TRACE, FOUR)
    assert "best_effort_avg_jct" not in figures(PLAN, TRACE, FOUR)


def test_curves_follow_the_schedule() -> None:
    found = curves(PLAN, TRACE, FOUR)
    assert found["queue_length"].x == [0, 1, 2, 10, 15]
    assert found["queue_length"].y == [0, 1, 2, 1, 0]
    assert found["utilization"].y == [0.5, 1.0, 0.25, 0.0]
    assert found["demand"].y == [2, 6, 7, 5, 1, 0]


def test_a_refused_job_is_there_until_it_is_refused() -> None:
    """One of 8 GPUs is dropped when it comes: what waits and what is wanted is as without it."""
    with_large = jobs((0, 2, 10), (1, 8, 50), (1, 4, 5), (2, 1, 3))
    plan = simulate(with_large, FOUR, registry.create("cluster", "fifo", {"oversized": "drop"}))
    assert plan.rejected == (1,)
    found, expected = figures(plan, with_large, FOUR), figures(PLAN, TRACE, FOUR)
    for name in ("contention_mean", "contention_max", "finish_time_fairness_max", "avg_jct"):
        assert found[name] == pytest.approx(expected[name]), name
    lines, plain = curves(plan, with_large, FOUR), curves(PLAN, TRACE, FOUR)
    for name in ("queue_length", "jobs_in_system", "demand", "fairness_distribution"):
        assert (lines[name].x, lines[name].y) == (plain[name].x, plain[name].y), name


def test_a_job_that_ends_early_leaves_the_queue_when_it_is_refused() -> None:
    """Two of a search take turns of 60 s on one GPU; the worse one is refused in the slice of the other.

    Each has done a tenth of its steps after its first slice; that of the second job ends at 121 s.
    """
    worse, better = (((1.0, 2.0), (10.0, 1.9)), ((1.0, 1.0), (10.0, 0.5)))
    trace = jobs((0, 1, 600), (0, 1, 600))
    trace = replace(trace, traits={"group": ("a", "a"), "losses": (worse, better)})
    plan = simulate(trace, ONE, registry.create("cluster", "gandiva", {"packing": False}))
    assert (plan.rejected, plan.refused_at) == ((0,), {0: 121.0})
    found = curves(plan, trace, ONE)
    assert (found["jobs_in_system"].x[:2], found["jobs_in_system"].y) == ([0, 121], [2, 1, 0])
    assert dict(zip(found["queue_length"].x, found["queue_length"].y, strict=True))[121] == 0


def test_parts_of_devices_are_wanted_as_parts() -> None:
    trace = replace(jobs((0, 1, 10), (0, 1, 10)), traits={"gpu_share": np.array([0.5, 0.25])})
    plan = simulate(trace, ONE, registry.create("cluster", "fifo", {}))
    assert curves(plan, trace, ONE)["demand"].y == [0.75, 0]


def outcome(folder: Path, **changes: object) -> Outcome:
    file = folder / "jobs.csv"
    file.write_text("submit,gpus,service\n0,2,10\n1,4,5\n2,1,3\n")
    hardware = {"cluster": {"nodes": 2, "devices_per_node": 2, "device": "t4"}}
    spec = {"family": "cluster", "policy": "fifo", "workload": {"source": str(file)}, "hardware": hardware}
    return run(load_spec({**spec, **changes}))


def test_an_outcome_is_complete_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = outcome(tmp_path), outcome(tmp_path)
    assert first.status == "ok" and first.violations == []
    assert first.metrics["makespan"] == {"value": 18.0, "unit": "s", "lower_is_better": True}
    assert first.plan["rows"][0] == ["0", 0.0, 10.0, 2, [[0, 2]], "completed", 0.0]
    parts = ("metrics", "series", "plan")
    assert all(jsonio.canonical(getattr(first, p)) == jsonio.canonical(getattr(second, p)) for p in parts)


def test_a_cluster_too_small_is_infeasible(tmp_path: Path) -> None:
    found = outcome(tmp_path, hardware={"cluster": {"nodes": 1, "devices_per_node": 3, "device": "t4"}})
    assert found.status == "infeasible"
    assert found.reason == "job 1: wants 4 GPUs, the cluster has 3: 1 are missing"
