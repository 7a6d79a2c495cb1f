"""What holds for every registered cluster policy on any jobs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import (
    HIDEABLE,
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    ExecutionLog,
    Machines,
    VisibleJobs,
    violations,
)
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.simulator import ClusterSimulation, simulate
from experiments.cluster.simulator.figures import Outcomes
from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.policy import HiddenColumn
from experiments.workloads.jobs import REQUESTS, TRAITS, JobTrace
from tests.experiments.cluster.traces import faults, jobs, suited

POLICIES = sorted(registry.family_policies("cluster"))
MACHINES = Machines.of_sizes([3, 2, 3])

rows = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8), st.integers(0, 40)), min_size=1, max_size=25)
every_policy = pytest.mark.parametrize("name", POLICIES)
placements = st.sampled_from(["count", "pack", "consolidate", "spread"])


def policy(name: str, **knobs: object) -> ClusterPolicy:
    """The policy with limits and rounds as short as these jobs (its ``quick`` knobs), but longer than a
    restart (2.5 s on 8 GPUs: 20 GPU s).
    """
    made = registry.create("cluster", name, {**registry.policy_class("cluster", name).quick, **knobs})
    assert isinstance(made, ClusterPolicy)
    return made


@every_policy
@settings(max_examples=30)
@given(rows=rows, placement=placements, restart=st.sampled_from([0.0, 2.5]))
def test_every_job_completes_once_and_no_device_is_given_twice(
    name: str, rows: list[tuple[int, int, int]], placement: str, restart: float
) -> None:
    made = policy(name, placement=placement, restart_cost=restart)
    trace, performance = suited(jobs(*rows), made, MACHINES)
    plan = simulate(trace, MACHINES, made, performance)
    assert violations(plan, trace, MACHINES, performance, rigid=made.rigid) == []
    assert plan.unfinished == ()
    assert made.rejects or plan.rejected == ()


@every_policy
@settings(max_examples=15)
@given(rows=rows, seed=st.integers(0, 99), loses=st.sampled_from(["nothing", "since checkpoint", "all"]))
def test_nothing_is_lost_when_nodes_fail(
    name: str, rows: list[tuple[int, int, int]], seed: int, loses: str
) -> None:
    """Each job is done once, all its work is, and seconds held are useful, restarting, lost or idle."""
    knobs = {"node_mtbf": 400.0, "node_repair": 20.0, "checkpoint_every": 5.0, "preemption_loses": loses}
    made = policy(name, **(knobs if not made_of_rounds(name) else {**knobs, "preemption_loses": "nothing"}))
    trace, performance = suited(jobs(*rows), made, MACHINES)
    plan = simulate(trace, MACHINES, made, performance, seed)
    assert violations(plan, trace, MACHINES, performance, rigid=made.rigid) == []
    assert plan.unfinished == ()
    seconds = Outcomes.of(plan, trace).device_seconds
    assert min(seconds.values()) >= -1e-6
    if performance.name == "fixed":
        done = [one.gang.job for one in plan.executions if one.completed]
        share = np.asarray(trace.traits.get("gpu_share", np.ones(len(trace))))
        assert seconds["useful"] == pytest.approx(float((trace.service * trace.gpus * share)[done].sum()))


def made_of_rounds(name: str) -> bool:
    """Whether the policy preempts again and again, so that a job that begins anew each time never ends."""
    return policy(name).round_seconds is not None or "limit_1" in policy(name).knob_values()


@every_policy
@settings(max_examples=15)
@given(rows=rows, seed=st.randoms(use_true_random=False))
def test_the_order_of_rows_means_nothing(name: str, rows: list[tuple[int, int, int]], seed: object) -> None:
    shuffled = list(range(len(rows)))
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    trace, performance = suited(jobs(*rows), policy(name), MACHINES)

    def mix(column: Any) -> Any:
        if isinstance(column, np.ndarray):
            return column[shuffled]
        return tuple(column[row] for row in shuffled)

    columns = ("job", "submit", "gpus", "service", "deadline", "model", "tenant")
    mixed = JobTrace.from_columns(
        name="mixed",
        **{column: mix(getattr(trace, column)) for column in columns},
        traits={trait: mix(column) for trait, column in trace.traits.items()},
        profiles=trace.profiles,
    )
    found = simulate(mixed, MACHINES, policy(name), performance_of(mixed, MACHINES))
    assert found == simulate(trace, MACHINES, policy(name), performance)


#: Hideable columns that every trace has.
COLUMNS = {"service", "deadline", "model", "tenant"}


def with_traits(trace: JobTrace, rng: np.random.Generator) -> JobTrace:
    """The trace with something in every column that a policy might look at."""
    numbers = {"batch": 2 ** rng.integers(0, 8, len(trace)), "priority": rng.integers(0, 4, len(trace))}
    shares = {name: rng.uniform(0.1, 1.0, len(trace)) for name in ("utilization", "weight")}
    amounts = {name: rng.uniform(1.0, 100.0, len(trace)) for name in ("iterations", "epochs")}
    classes = tuple(rng.choice(["guaranteed", "opportunistic"], len(trace)).tolist())
    words = {
        name: tuple(f"{name} {value}" for value in rng.integers(0, 3, len(trace)))
        for name in ("user", "group", "name")
    }
    words["suggested_nodes"] = tuple(rng.choice(["", "node-0", "node-0|node-1"], len(trace)).tolist())
    losses = tuple(((1.0, value),) for value in rng.uniform(0.0, 3.0, len(trace)).tolist())
    traits = {**numbers, **shares, **amounts, "class": classes, **words, "losses": losses}
    assert traits.keys() == TRAITS.keys() - REQUESTS
    return replace(trace, traits={**trace.traits, **traits})


class Recorder:
    """Stands between simulator and policy and asks a second decider that is shown other hidden columns."""

    def __init__(self, policy: ClusterPolicy, permuted: JobTrace) -> None:
        self.real, self.other = policy.begin(), policy.begin()
        self.other_jobs = VisibleJobs(permuted, policy.sees)
        self.questions = 0

    def allocate(self, view: ClusterView) -> Allocation:
        self.questions += 1
        random = copy.deepcopy(view.rng)
        answer = self.real.allocate(view)
        assert self.other.allocate(replace(view, jobs=self.other_jobs, rng=random)) == answer
        return answer


@every_policy
@settings(max_examples=15)
@given(rows=rows, seed=st.integers(0, 2**32 - 1))
def test_hidden_columns_change_no_decision(name: str, rows: list[tuple[int, int, int]], seed: int) -> None:
    """The same history, with what the policy may not see permuted, gets the same answers."""
    rng = np.random.default_rng(seed)
    trace, performance = suited(with_traits(jobs(*rows), rng), policy(name), MACHINES)
    hidden = HIDEABLE - policy(name).sees
    traits = {trait: _permuted(column, rng) for trait, column in trace.traits.items() if trait in hidden}
    columns = {column: _permuted(getattr(trace, column), rng) for column in sorted(hidden & COLUMNS)}
    permuted = replace(trace, **columns, traits={**trace.traits, **traits})
    simulation = ClusterSimulation(trace, MACHINES, policy(name), performance)
    recorder = simulation.decider = Recorder(policy(name), permuted)
    simulation.run()
    assert recorder.questions > 0


def _permuted(column: object, rng: np.random.Generator) -> object:
    if isinstance(column, np.ndarray):
        return rng.permutation(column)
    assert isinstance(column, tuple)
    return tuple(column[place] for place in rng.permutation(len(column)))


@every_policy
def test_a_column_that_is_not_declared_is_not_there(name: str) -> None:
    seen = VisibleJobs(with_traits(jobs((0, 1, 5)), np.random.default_rng(0)), policy(name).sees)
    for column in HIDEABLE - policy(name).sees:
        with pytest.raises(HiddenColumn, match=f"{column} is hidden"):
            seen.column(column)


@pytest.mark.parametrize("name", ["fifo", "sjf"])
@settings(max_examples=30)
@given(rows=rows)
def test_nothing_waits_that_the_policy_would_start(name: str, rows: list[tuple[int, int, int]]) -> None:
    """Work conserving: while a one-GPU job waits, every device is held (skipping policies)."""
    trace = jobs(*[(submit, 1, service) for submit, _, service in rows])
    plan = simulate(trace, MACHINES, policy(name))
    first = {s.gang.job: s.start for s in plan.executions}
    for job, start in first.items():
        if start > trace.submit[job]:
            before = sum(s.gang.size for s in plan.executions if s.start < start <= s.end)
            assert before == MACHINES.devices


class TestViolations:
    """The checker sees what is wrong: a plan is falsified in one place each."""

    trace = jobs((0, 2, 10), (1, 3, 5))
    machines = Machines.of_sizes([3])

    def plan(self) -> ClusterPlan:
        return simulate(self.trace, self.machines, registry.create("cluster", "fifo", {}))

    def found(self, **change: object) -> str:
        plan = self.plan()
        executions = (plan.executions[0], plan.executions[1]._replace(**change))  # type: ignore[arg-type]
        return "; ".join(faults(ClusterPlan(ExecutionLog(executions)), self.trace, self.machines))

    def test_a_good_plan_has_none(self) -> None:
        assert faults(self.plan(), self.trace, self.machines) == []

    def test_started_before_submission(self) -> None:
        assert "job 1 starts at 0.5 s, before 1 s" in self.found(start=0.5)

    def test_devices_given_twice(self) -> None:
        assert "device 0 of node-0 is given out 2 times at 5 s" in self.found(start=5.0)

    def test_too_little_work(self) -> None:
        assert "job 1 completes after 4 s of progress instead of 5 s" in self.found(work=4.0)

    def test_never_ended(self) -> None:
        assert "job 1 is completed, rejected or unfinished 0 times" in self.found(ended="preempted")


def test_preempting_before_the_restart_is_paid_is_told_instead_of_going_on_for_ever() -> None:
    """An execution in the first queue is 20 GPU s: on 8 GPUs 2.5 s, which is what a restart costs. Nothing is
    ever done.
    """
    rows = [
        (55, 8, 28),
        (32, 4, 11),
        (51, 8, 40),
        (39, 3, 6),
        (28, 5, 9),
        (5, 1, 38),
        (25, 8, 39),
        (41, 3, 39),
    ]
    rows += [(0, 2, 3), (2, 4, 15), (38, 1, 29), (20, 8, 37), (53, 4, 33), (14, 5, 31), (0, 2, 29)]
    thrashing = policy("tiresias", limit_1=20.0, limit_2=50.0, restart_cost=2.5, placement="count")
    with pytest.raises(Infeasible, match=r"policy tiresias at t=.*each restart costs 2\.5 s"):
        simulate(jobs(*rows), MACHINES, thrashing)


@pytest.mark.parametrize(("every", "ends"), [(20.0, False), (5.0, True)])
def test_losing_more_than_is_done_between_checkpoints_is_told(every: float, ends: bool) -> None:
    """Two jobs of 100 s take turns of 10 s on one GPU; a checkpoint after 20 s is never reached."""
    knobs = {"preemption_loses": "since checkpoint", "checkpoint_every": every, "round_length": 10.0}
    trace, machines = jobs((0, 1, 100), (0, 1, 100)), Machines.of_sizes([1])
    if ends:
        assert simulate(trace, machines, policy("las", **knobs)).unfinished == ()
        return
    with pytest.raises(
        Infeasible, match=r"no job came further in 30000 decisions.*policy las|policy las.*30000"
    ):
        simulate(trace, machines, policy("las", **knobs))
