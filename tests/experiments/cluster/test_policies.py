"""Each policy on a handful of jobs whose schedule can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPolicy, Machines
from experiments.cluster.policies.tiresias.gittins import Gittins
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.core.errors import BadInput, Infeasible
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import jobs

ONE_GPU, FOUR_GPUS = Machines.of_sizes([1]), Machines.of_sizes([4])


def stays(
    trace: JobTrace, machines: Machines, policy: str, **knobs: object
) -> list[tuple[str, float, float]]:
    """Who ran from when to when."""
    plan = simulate(trace, machines, registry.create("cluster", policy, knobs))
    return sorted((trace.job[s.gang.job], s.start, s.end) for s in plan.executions)


def ends(trace: JobTrace, machines: Machines, policy: str, **knobs: object) -> list[float]:
    plan = simulate(trace, machines, registry.create("cluster", policy, knobs))
    completed = {s.gang.job: s.end for s in plan.executions if s.completed}
    return [completed[job] for job in range(len(trace))]


class TestFifo:
    trace = jobs((0, 2, 10), (1, 4, 5), (2, 1, 3))

    def test_the_head_of_the_line_blocks(self) -> None:
        assert stays(self.trace, FOUR_GPUS, "fifo") == [("0", 0, 10), ("1", 10, 15), ("2", 15, 18)]

    def test_first_fit_backfills_what_fits(self) -> None:
        found = stays(self.trace, FOUR_GPUS, "fifo", backfill="first-fit")
        assert found == [("0", 0, 10), ("1", 10, 15), ("2", 2, 5)]

    def test_easy_does_not_delay_the_head(self) -> None:
        trace = jobs((0, 2, 10), (1, 4, 5), (2, 1, 30), (3, 1, 6))
        assert stays(trace, FOUR_GPUS, "fifo-easy")[1:3] == [("1", 10, 15), ("2", 15, 45)]
        assert ends(trace, FOUR_GPUS, "fifo-easy")[3] == 9

    def test_easy_lets_a_long_job_use_what_the_head_will_leave(self) -> None:
        trace = jobs((0, 2, 10), (1, 3, 5), (2, 1, 30))
        assert stays(trace, FOUR_GPUS, "fifo-easy") == [("0", 0, 10), ("1", 10, 15), ("2", 2, 32)]

    def test_a_job_larger_than_the_cluster_is_told_by_how_much(self) -> None:
        with pytest.raises(Infeasible, match="job 1: wants 6 GPUs, the cluster has 4: 2 are missing"):
            simulate(jobs((0, 2, 10), (1, 6, 5)), FOUR_GPUS, registry.create("cluster", "fifo", {}))

    def test_a_job_of_no_length_ends_when_it_starts(self) -> None:
        assert ends(jobs((3, 1, 0), (3, 1, 2)), ONE_GPU, "fifo") == [3, 5]


class TestSjf:
    def test_shortest_first(self) -> None:
        assert ends(jobs((0, 1, 5), (0, 1, 1), (0, 1, 3)), ONE_GPU, "sjf") == [9, 1, 4]

    def test_shortest_blocks_unless_told_to_skip(self) -> None:
        trace = jobs((0, 2, 10), (1, 4, 2), (1, 2, 3))
        assert ends(trace, FOUR_GPUS, "sjf") == [10, 12, 15]
        assert ends(trace, FOUR_GPUS, "sjf", blocking=False) == [10, 12, 4]

    def test_short_may_mean_little_gpu_time(self) -> None:
        trace = jobs((0, 4, 1), (0, 4, 2), (0, 1, 3))
        assert ends(trace, FOUR_GPUS, "sjf", key="service") == [4, 6, 3]


class TestSrtf:
    def test_a_shorter_job_preempts(self) -> None:
        trace = jobs((0, 1, 10), (2, 1, 3))
        assert stays(trace, ONE_GPU, "srtf") == [("0", 0, 2), ("0", 5, 13), ("1", 2, 5)]

    def test_resuming_costs_what_the_knob_says(self) -> None:
        assert ends(jobs((0, 1, 10), (2, 1, 3)), ONE_GPU, "srtf", restart_cost=4.0) == [17, 5]

    def test_equals_do_not_take_turns(self) -> None:
        assert stays(jobs((0, 1, 10), (4, 1, 6)), ONE_GPU, "srtf") == [("0", 0, 10), ("1", 10, 16)]


class TestLas:
    def test_equals_take_turns_in_rounds(self) -> None:
        trace = jobs((0, 1, 2), (0, 1, 2))
        found = stays(trace, ONE_GPU, "las", round_length=1.0)
        assert found == [("0", 0, 1), ("0", 2, 3), ("1", 1, 2), ("1", 3, 4)]

    def test_a_new_job_waits_for_the_round_to_end(self) -> None:
        found = stays(jobs((0, 1, 20), (3, 1, 5)), ONE_GPU, "las", round_length=10.0)
        assert found == [("0", 0, 10), ("0", 15, 25), ("1", 10, 15)]


class TestTiresias:
    """A reaches the limit of 100 GPU s at 25 s; B, which came at 10 s, then goes first."""

    trace = jobs((0, 4, 50), (10, 2, 20))

    def test_demotion_lets_the_newer_job_run(self) -> None:
        found = stays(self.trace, FOUR_GPUS, "tiresias", queues=2, limit_1=100.0)
        assert found == [("0", 0, 25), ("0", 45, 70), ("1", 25, 45)]

    def test_the_artifact_demotes_late(self) -> None:
        """At 10 s it looks next at 10 + ceil((100 - 10) / 4) = 33 s."""
        found = stays(self.trace, FOUR_GPUS, "tiresias-artifact", queues=2, limit_1=100.0)
        assert found == [("0", 0, 33), ("0", 53, 70), ("1", 33, 53)]

    def test_a_starving_job_is_promoted(self) -> None:
        """One GPU: A is demoted at 10 s and starves behind newcomers of 9 s until it has waited twice its 10
        s.
        """
        newcomers = [(9.0 * i, 1, 9.0) for i in range(1, 8)]
        trace = jobs((0, 1, 12), *newcomers)
        starved = ends(trace, ONE_GPU, "tiresias", queues=2, limit_1=10.0)[0]
        promoted = stays(trace, ONE_GPU, "tiresias", queues=2, limit_1=10.0, promote=2.0)
        resumed = [stay for stay in promoted if stay[0] == "0"][1]
        assert starved == 12 + 7 * 9
        assert resumed[1] < starved - 2

    def test_limits_ascend(self) -> None:
        with pytest.raises(BadInput, match=r"knobs.limit_2: 100 is not above 3250"):
            registry.create("cluster", "tiresias", {"limit_2": 100.0})


class TestPlacement:
    two_nodes = Machines.of_sizes([4, 4])

    def devices(self, rule: str, *rows: tuple[float, int, float]) -> dict[str, tuple[tuple[int, int], ...]]:
        trace = jobs(*rows)
        plan = simulate(trace, self.two_nodes, registry.create("cluster", "fifo", {"placement": rule}))
        return {trace.job[s.gang.job]: self.two_nodes.by_node(s.gang.devices) for s in plan.executions}

    def test_counting_takes_any_free_devices(self) -> None:
        assert self.devices("count", (0, 3, 9), (1, 3, 9))["1"] == ((0, 1), (1, 2))

    def test_packing_prefers_the_fullest_node_that_holds_all(self) -> None:
        found = self.devices("pack", (0, 3, 9), (1, 3, 9), (2, 1, 9))
        assert found == {"0": ((0, 3),), "1": ((1, 3),), "2": ((0, 1),)}

    def test_packing_scatters_where_it_must_and_consolidation_waits(self) -> None:
        rows = ((0, 3, 9), (1, 3, 9), (2, 2, 5))
        assert self.devices("pack", *rows)["2"] == ((0, 1), (1, 1))
        assert ends(jobs(*rows), self.two_nodes, "fifo", placement="consolidate") == [9, 10, 14]

    def test_spreading_takes_the_emptiest_node(self) -> None:
        found = self.devices("spread", (0, 1, 9), (1, 1, 9))
        assert found == {"0": ((0, 1),), "1": ((1, 1),)}


class TestEdf:
    """Card 5: one GPU, A with 4 s until 5 s, B with 4 s until 6 s."""

    def test_the_nearest_deadline_first(self) -> None:
        trace = replace(jobs((0, 1, 4), (0, 1, 4)), deadline=np.array([5.0, 6.0]))
        assert stays(trace, ONE_GPU, "edf") == [("0", 0, 4), ("1", 4, 8)]
        plan = simulate(trace, ONE_GPU, registry.create("cluster", "edf", {}))
        assert figures(plan, trace, ONE_GPU)["deadline_satisfaction"] == 0.5

    def test_a_nearer_deadline_preempts_and_one_without_comes_last(self) -> None:
        trace = replace(jobs((0, 1, 4), (0, 1, 9), (1, 1, 2)), deadline=np.array([9.0, np.nan, 4.0]))
        assert stays(trace, ONE_GPU, "edf") == [("0", 0, 1), ("0", 3, 6), ("1", 6, 15), ("2", 1, 3)]


class TestTiresiasIndexAndPlacement:
    def test_the_gittins_index_of_two_samples(self) -> None:
        """Card 8: half of the jobs end within 3,250 GPU s, and (1,000 + 3,250) / 2 are used on average."""
        known = Gittins([1000.0, 5000.0])
        assert known.release_index(0.0, 3250.0) == 235.2941
        assert known.index(0.0, 3250.0) == pytest.approx(0.5 / 2125)
        assert known.release_index(5000.0, 3250.0) == known.index(5000.0, 3250.0) == 0.0

    def test_what_is_left_counts_and_not_the_whole_service(self) -> None:
        """A job of 500 has at least 500 more: 1,000 - 500, or 3,250 of the longer one's 4,500."""
        assert Gittins([1000.0, 5000.0]).index(500.0, 3250.0) == pytest.approx(0.5 / ((500 + 3250) / 2))

    def test_gittins_lets_a_job_run_on_that_is_about_to_end(self) -> None:
        """Jobs of 4 s have ended when A has run 3 s and B comes: A is likely to end with the next second."""
        trace = jobs((0, 1, 4), (4, 1, 4), (8, 1, 4), (11, 1, 4), (11, 1, 4))
        found = stays(trace, ONE_GPU, "tiresias", index="gittins", queues=2, limit_1=100.0)
        assert [start for _, start, _ in found] == [0, 4, 8, 12, 16]

    def test_further_limits_grow(self) -> None:
        policy = registry.create("cluster", "tiresias", {"queues": 6, "growth": 2.0})
        assert policy.limits == (3250, 7200, 18000, 36000, 72000, float("inf"))  # type: ignore[attr-defined]

    def test_only_models_with_one_large_tensor_wait_for_a_whole_node(self) -> None:
        machines = Machines.of_sizes([4, 4])
        trace = jobs((0, 3, 9), (0, 3, 9), (1, 2, 5))
        for model, start in (("ResNet-50", 1), ("vgg16", 9), ("unheard of", 9)):
            named = replace(trace, model=("", "", model))
            assert stays(named, machines, "tiresias", placement="skew")[2] == ("2", start, start + 5)

    def test_with_exponential_service_on_one_device_no_order_has_a_better_mean(self) -> None:
        """20,000 jobs at 60 % load; nobody knows how long a job still runs."""
        rng = np.random.default_rng(7)
        submit, service = np.cumsum(rng.exponential(1 / 0.6, 20_000)), rng.exponential(1.0, 20_000)
        trace = replace(
            jobs(*[(0, 1, 1)] * 20_000), submit=submit, service=service, job=tuple(map(str, range(20_000)))
        )
        limits = {"queues": 4, "limit_1": 0.5, "limit_2": 1.5, "limit_3": 3.0}
        means = [
            figures(simulate(trace, ONE_GPU, made), trace, ONE_GPU)["avg_jct"]
            for made in (
                registry.create("cluster", "fifo", {}),
                registry.create("cluster", "tiresias", limits),
                registry.create("cluster", "tiresias", {"index": "gittins", **limits}),
            )
        ]
        assert means == pytest.approx([means[0]] * 3, rel=0.05)
        assert means[0] == pytest.approx(1 / (1 - 0.6), rel=0.1)


@pytest.mark.parametrize("name", ["srtf", "las", "tiresias", "tiresias-artifact"])
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(1, 80)), min_size=1, max_size=25
    ),
    placement=st.sampled_from(["count", "pack"]),
    cost=st.sampled_from([0.0, 0.0, 5.0]),
    promotes=st.booleans(),
)
def test_orders_that_are_kept_are_those_that_are_made_anew(
    name: str, rows: list[tuple[int, int, int]], placement: str, cost: float, promotes: bool
) -> None:
    """What a decision keeps from the last one changes nothing: the same jobs run at the same times."""
    trace = jobs(*[(float(s), g, float(w)) for s, g, w in sorted(rows)])
    machines = Machines.of_sizes([4, 4, 2])
    queues = {"limit_1": 30.0, "limit_2": 90.0}
    more: dict[str, float] = {"las": {"round_length": 7.0}, "srtf": {}}.get(name, queues)
    # Where restarts cost, jobs that are promoted again and again get nowhere.
    more |= {"promote": 1.5} if name.startswith("tiresias") and promotes and not cost else {}
    knobs = {"placement": placement, "restart_cost": cost, **more}
    policy = registry.create("cluster", name, knobs)
    assert isinstance(policy, ClusterPolicy)
    kept = simulate(trace, machines, policy)
    with pytest.MonkeyPatch.context() as patch:
        forget(name, patch)
        anew = simulate(trace, machines, policy)
    assert figures(kept, trace, machines) == pytest.approx(figures(anew, trace, machines), nan_ok=True)
    assert [len(one) for one in (kept.executions, anew.executions)] == [len(kept.executions)] * 2


def forget(name: str, patch: pytest.MonkeyPatch) -> None:
    """Let the policy look at all running jobs at every decision."""
    if name.startswith("tiresias"):
        patch.setattr("experiments.cluster.policies.tiresias._Queues._is_steady", lambda *_: False)
        patch.setattr("experiments.cluster.policies.tiresias._Queues._is_kept", lambda *_: False)
    elif name == "srtf":
        patch.setattr(
            "experiments.cluster.policies.srtf._LeastLeftFirst._keep_order",
            lambda self, view: setattr(self, "order", None),
        )
    else:
        patch.setattr("experiments.cluster.policies.las._LeastServedFirst._keeps_order", False)
    patch.setattr("experiments.cluster.interface.waiting.RankedJobs.choose", choose_slowly)


def choose_slowly(
    self: Any, running: Any, sizes: Any, room: float, ahead: float = 0.0
) -> tuple[list[int], list[int]]:
    """One job after another, waiting and running."""
    waiting = [(ranked[0] + ahead, *ranked[1:]) for _, ranked in self._where.values()]
    size_of = {job: size for job, (size, _) in self._where.items()}
    size_of |= {ranked[-1]: size for ranked, size in zip(running, sizes, strict=True)}
    winners: list[int] = []
    losers: list[int] = []
    for ranked in sorted([*running, *waiting]):
        job = ranked[-1]
        fits = size_of[job] <= room
        room -= size_of[job] if fits else 0
        if job in self._where and fits:
            winners.append(job)
        elif job not in self._where and not fits:
            losers.append(job)
    return winners, losers
