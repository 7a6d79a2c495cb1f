"""PAI: predictions of ended jobs alone, parts of GPUs packed, high-end ones kept for who needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterView,
    Decider,
    Demand,
    Gang,
    Machine,
    Machines,
)
from experiments.cluster.policies.pai import Pai
from experiments.cluster.policies.pai.predictions import BY_FEATURE, EndedJobs
from experiments.cluster.policies.pai.queue import PredictedJobs
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs

ONE, FOUR = Machines.of_sizes([1]), Machines.of_sizes([4])
MIXED = Machines([Machine("old", 2, "t4-16g"), Machine("new", 2, "v100-16g")])


def planned(trace: JobTrace, machines: Machines, name: str = "pai", **knobs: Any) -> ClusterPlan:
    plan = simulate(trace, machines, registry.create("cluster", name, knobs))  # type: ignore[arg-type]
    assert faults(plan, trace, machines) == []
    return plan


def of_groups(trace: JobTrace, groups: str, users: str = "") -> JobTrace:
    """Jobs of the groups that are letters; ``-`` for none."""
    names = tuple(group.strip("-") for group in groups)
    return replace(trace, traits={**trace.traits, "group": names, "user": tuple(users or "u" * len(trace))})


def starts(plan: ClusterPlan) -> dict[int, float]:
    return {one.gang.job: one.start for one in plan.executions}


def test_a_group_is_predicted_by_the_mean_of_what_ended_and_others_by_that_of_all() -> None:
    """The card: 10 and 20 give 15; a group of which nothing ended stands behind one known to be shorter."""
    ended = EndedJobs(lambda job, view: "gh"[job % 2], {"g": (30.0, 2), "h": (4.0, 1)}, 34.0, 3)
    assert (ended.predict("g"), ended.predict("new"), ended.of_others) == (15.0, None, 34 / 3)
    queue = PredictedJobs(ended)
    for job, group in enumerate(("g", "new", "h")):
        queue.add(job, Demand(1), group)
    order = []
    while queue.has(Demand(1)):
        seconds, job = queue.first(Demand(1))
        order.append((job, seconds))
        queue.remove(job)
    assert order == [(2, 4.0), (1, 34 / 3), (0, 15.0)]


def test_the_order_follows_what_has_ended_by_then() -> None:
    """Long and short scripts in turns on one GPU: after one of each has ended the short ones overtake."""
    rows = [(time, 1, 100.0 if time % 2 == 0 else 10.0) for time in range(8)]
    trace = of_groups(jobs(*rows), "LSLSLSLS")
    for order in ("sjg", "sjgg"):
        found = starts(planned(trace, ONE, order=order))
        assert sorted(found, key=found.__getitem__) == [0, 1, 3, 5, 7, 2, 4, 6]
    by_user = starts(planned(trace, ONE, order="sju"))
    assert sorted(by_user, key=by_user.__getitem__) == list(range(8))


def test_a_job_without_group_is_its_users() -> None:
    trace = of_groups(jobs((0, 1, 50), (1, 1, 5), (2, 1, 50), (3, 1, 5)), "----", "abab")
    found = starts(planned(trace, ONE, order="sjg"))
    assert found[3] < found[2]


def test_parts_of_gpus_are_packed_and_what_does_not_fit_is_skipped() -> None:
    trace = of_groups(jobs((0, 1, 9), (0, 1, 9), (0, 4, 9), (0, 1, 9), (0, 2, 9)), "aaaaa")
    trace = replace(trace, traits={**trace.traits, "gpu_share": np.array([0.5, 0.5, 1, 0.25, 1])})
    plan = planned(trace, FOUR, order="fifo")
    assert starts(plan) == {0: 0, 1: 0, 2: 9, 3: 0, 4: 0}
    devices = {one.gang.job: one.gang.devices for one in plan.executions}
    assert devices[0] == devices[1] != devices[3]


def test_load_is_balanced_over_processors_too() -> None:
    """The second job goes to the node with as many free GPUs and more free processors."""
    machines = Machines([Machine("a", 4, cpus=16.0), Machine("b", 4, cpus=64.0)])
    trace = of_groups(jobs((0, 1, 9), (1, 1, 9), (2, 1, 9)), "aaa")
    trace = replace(trace, traits={**trace.traits, "cpu": np.array([4.0, 4.0, 4.0])})
    plan = planned(trace, machines, placement="least used")
    assert [machines.node_of[one.gang.devices[0]] for one in plan.executions] == [0, 1, 1]


class TestReserving:
    def test_small_jobs_leave_high_end_gpus_to_a_large_one(self) -> None:
        trace = of_groups(jobs((0, 1, 60), (0, 1, 60), (1, 2, 60)), "aaa")
        kept = planned(trace, MIXED, linked=2)
        assert starts(kept) == {0: 0, 1: 0, 2: 1}
        taken = planned(trace, Machines(reversed(list(MIXED))), reserve=False)
        assert starts(taken)[2] == 1
        assert {
            MIXED.type_of(d) for one in kept.executions if one.gang.job < 2 for d in one.gang.devices
        } == {"t4-16g"}

    def test_after_its_patience_a_job_takes_any(self) -> None:
        trace = of_groups(jobs(*[(0, 1, 60)] * 4), "aaaa")
        assert starts(planned(trace, MIXED, patience=20.0)) == {0: 0, 1: 0, 2: 20, 3: 20}
        assert starts(planned(trace, MIXED, patience=0.0)) == dict.fromkeys(range(4), 0)

    def test_wishes_for_a_type_hold_or_do_not(self) -> None:
        trace = of_groups(jobs((0, 1, 60), (0, 1, 60)), "aa")
        trace = replace(trace, traits={**trace.traits, "gpu_type": ("v100-16g", "p100-16g")})
        with pytest.raises(Infeasible):
            planned(trace, MIXED)
        for matching, kinds in (("high-end only", ["t4-16g", "v100-16g"]), ("none", ["t4-16g", "t4-16g"])):
            plan = planned(trace, MIXED, matching=matching)
            assert sorted(MIXED.type_of(one.gang.devices[0]) for one in plan.executions) == kinds


def drawn(seed: int, count: int = 200) -> JobTrace:
    """Jobs of 12 scripts of 4 users, in parts and whole, of fixed durations by script."""
    rng = np.random.default_rng(seed)
    script = rng.integers(0, 12, count)
    typical = np.exp(rng.uniform(np.log(5), np.log(800), 12))
    seconds = typical[script] * rng.uniform(0.9, 1.1, count)
    gpus = rng.choice([1, 1, 2, 4], count)
    share = np.where((gpus == 1) & (rng.random(count) < 0.5), 0.5, 1.0)
    submit = np.sort(rng.uniform(0, float((seconds * gpus * share).sum()) / 5, count))
    trace = jobs(*zip(submit.tolist(), gpus.tolist(), seconds.tolist(), strict=True))
    users = "".join("wxyz"[one % 4] for one in script)
    trace = of_groups(trace, "".join("abcdefghijkl"[one] for one in script), users)
    return replace(trace, traits={**trace.traits, "gpu_share": share})


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), part=st.floats(0.05, 0.95), order=st.sampled_from(["sju", "sjg", "sjgg"]))
def test_only_jobs_that_have_ended_are_known(seed: int, part: float, order: str) -> None:
    """A history is cut anywhere: whatever had not ended by then may take any time, and until then nothing
    starts otherwise.
    """
    trace = drawn(seed, 60)
    plan = planned(trace, FOUR, order=order)
    ends = {one.gang.job: one.end for one in plan.executions}
    cut = float(np.quantile(list(ends.values()), part))
    rng = np.random.default_rng(seed)
    later = trace.service.copy()
    for job, end in ends.items():
        if end > cut:
            later[job] = max(0.0, cut - starts(plan)[job]) + 1.0 + 500.0 * rng.random()
    other = planned(replace(trace, service=later), FOUR, order=order)
    before = [{job: time for job, time in starts(one).items() if time <= cut} for one in (plan, other)]
    assert before[0] == before[1] != {}


def test_lines_keep_the_order_of_a_list_that_is_sorted_anew_each_time() -> None:
    """The plan is that of going through all waiting jobs at each event, by what is predicted then."""
    trace = drawn(7, 150)
    for order in ("sju", "sjg", "sjgg"):
        plan = planned(trace, FOUR, order=order)
        assert starts(plan) == starts(simulate(trace, FOUR, _Plain(order=order)))


class _Plain(Pai):
    """The same decisions as the authors' simulator makes them: sort the whole list, try each job."""

    name = ""

    def begin(self) -> Decider:
        return _Sorting(EndedJobs(BY_FEATURE[self.order]))


@dataclass
class _Sorting:
    known: EndedJobs

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self.known.add(job, view)
        pool, started = view.pool.copy(), list[Gang]()
        for job in sorted(view.waiting, key=lambda job: (self._seconds(job, view), job)):
            gang = pool.place(job, view.jobs.demand(job), "pack")
            if gang is not None:
                pool.take(gang)
                started.append(gang)
        return Allocation(tuple(started))

    def _seconds(self, job: int, view: ClusterView) -> float:
        seconds = self.known.predict(self.known.feature(job, view))
        return self.known.of_others if seconds is None else seconds


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_that_fix_durations_are_nearly_as_good_as_knowing_them(seed: int) -> None:
    trace = drawn(seed, 600)
    mean = {
        name: figures(planned(trace, FOUR, policy, **knobs), trace, FOUR)["avg_jct"]
        for name, policy, knobs in (
            ("known", "pai-sjf", {}),
            ("group", "pai", {}),
            ("fifo", "pai", {"order": "fifo"}),
        )
    }
    assert mean["group"] <= 1.2 * mean["known"]
    assert 1.2 * mean["group"] <= mean["fifo"]


def whole_gpus() -> JobTrace:
    """2,000 jobs on 1, 2 or 4 GPUs each, at a tenth more than 60 GPUs can do."""
    rng, count = np.random.default_rng(1), 2000
    script = rng.integers(0, 60, count)
    typical = np.exp(rng.uniform(np.log(10), np.log(4000), 60))
    seconds = np.maximum(1, (typical[script] * rng.uniform(0.8, 1.2, count)).astype(int))
    gpus = rng.choice([1, 1, 1, 2, 4], count)
    cpus = rng.choice([2, 4, 8], count).astype(float)
    submit = np.sort(rng.uniform(0, float((seconds * gpus).sum()) / 60 / 1.1, count)).astype(int)
    trace = jobs(*zip(submit.tolist(), gpus.tolist(), seconds.tolist(), strict=True))
    return replace(trace, traits={"user": ("u",) * count, "cpu": cpus})


@pytest.mark.parametrize(
    ("name", "order", "time", "wait"),
    [("pai", "fifo", 1917.706, 1133.4345), ("pai-sjf", "sjf", 1066.7485, 282.477)],
)
def test_whole_gpus_give_the_figures_of_the_authors_simulator(
    name: str, order: str, time: float, wait: float
) -> None:
    """It was run on this trace, on one node as it is shipped; both are exact."""
    trace, machines = whole_gpus(), Machines([Machine("one", 60, cpus=1393.0)])
    found = figures(planned(trace, machines, name, order=order), trace, machines)
    assert found["avg_jct"] == pytest.approx(time)
    assert found["avg_waiting_time"] == pytest.approx(wait)
