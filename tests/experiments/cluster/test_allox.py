"""AlloX' matching, in Gavel's simulator and in the lab's own engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.experiment.knowledge import refuse_unknown
from experiments.cluster.interface import Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.allox import Allox, firsts
from experiments.cluster.simulator import figures, simulate
from experiments.cluster.simulator.releases import engine_of
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.sources import jobs_of
from experiments.workloads.step import Floats
from tests.experiments.cluster.open_cases import figures_by_case
from tests.experiments.cluster.test_gavel import machines
from tests.experiments.cluster.traces import jobs


def test_the_short_job_comes_first() -> None:
    """One device, 3 s and 1 s: the long one last (1 x 3 + 2 x 1 = 5), the other way 7."""
    assert firsts(np.array([[3.0], [1.0]]), np.zeros(2), [1]) == {1: 0}


def test_two_types_each_get_who_is_fast_there() -> None:
    times = np.array([[10.0, 2.0], [3.0, 2.0]])
    assert firsts(times, np.zeros(2), [1, 1]) == {1: 0, 0: 1}


def _sum_of_completions(times: Floats, first: dict[int, int], rest: Sequence[tuple[int, ...]]) -> float:
    """With these jobs first on their devices, and the others behind them in the order given by device."""
    ahead = {place: row for row, place in first.items()}
    total = 0.0
    for place, behind in enumerate(rest):
        order = [*([ahead[place]] if place in ahead else []), *behind]
        total += sum(itertools.accumulate(float(times[row, place]) for row in order))
    return total


def _ways(rows: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All ways to queue jobs on two devices."""
    for order in itertools.permutations(rows):
        for cut in range(len(rows) + 1):
            yield order[:cut], order[cut:]


@settings(max_examples=30)
@given(rows=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5))
def test_the_firsts_of_a_matching_begin_the_best_queues(rows: list[tuple[int, int]]) -> None:
    """Some way to go on from them has the smallest mean completion time of all ways to queue."""
    times = np.array(rows, np.float64)
    first = firsts(times, np.zeros(len(rows)), [1, 1])
    others = [row for row in range(len(rows)) if row not in first]
    ours = min(_sum_of_completions(times, first, way) for way in _ways(others))
    assert ours == min(_sum_of_completions(times, {}, way) for way in _ways(range(len(rows))))


def test_a_running_job_keeps_its_device_and_the_short_one_is_next() -> None:
    trace = jobs((0, 1, 10), (1, 1, 9), (2, 1, 3))
    plan = simulate(trace, Machines.of_sizes([1]), Allox(), performance_of(trace, Machines.of_sizes([1])))
    assert [(one.gang.job, one.start) for one in plan.executions] == [(0, 0), (2, 10), (1, 13)]


def test_jobs_of_several_gpus_are_counted_and_refused() -> None:
    trace = jobs((0, 2, 1), (0, 1, 1), (0, 4, 1))
    with pytest.raises(BadInput, match="has 2 jobs of several GPUs, of 3, and allox knows jobs of one"):
        refuse_unknown(Allox(), trace, performance_of(trace, Machines.of_sizes([4])), {})


def run(shared: Path, seed: int, rate: float, window: str) -> dict[str, float]:
    extra = str(shared / "cluster/gavel/simulation_throughputs.json.gz")
    options = WorkloadOptions(rate=rate, window=window, extra=extra)
    trace, _ = jobs_of(Workload("generated:gavel", options=options), seed)
    nodes = machines(36, 36, 36)
    policy, performance = Allox(rules="gavel"), performance_of(trace, nodes)
    plan = engine_of("gavel")(trace, nodes, policy, performance, seed)
    return figures(plan, trace, nodes)


@pytest.mark.slow
def test_the_published_figure(shared_data: Path) -> None:
    found = run(shared_data, 42, 0.000111111111, "4000:5000")
    expected = figures_by_case(shared_data, "gavel")["gavel-cont-allox-42-9000"]
    assert found["avg_jct"] == pytest.approx(expected["avg_jct"], rel=1e-5)
    assert found["worker_busy_fraction"] == pytest.approx(expected["utilization"], abs=5e-5)
