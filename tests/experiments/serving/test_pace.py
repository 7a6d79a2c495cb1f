"""The pace of a host: what is foretold at it is what a changed clock gives; and what a meter reads."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import registry
from experiments.serving.experiment.live_engines import LiveHost
from experiments.serving.interface import Batch, ServingPlan, ServingPolicy, ServingView
from experiments.serving.interface.pace import Pace
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import simulate
from experiments.serving.simulator.paged import PagedEngine, simulate_paged
from experiments.serving.simulator.priced import PricedBatches
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import ToyPrice, engine, policies_of, requests

live = pytest.importorskip("experiments.serving.live")
pace_meter = pytest.importorskip("experiments.serving.live.pace_meter")

AT_ONCE = requests((0, 30, 12), (0, 5, 20), (0, 12, 3), (0, 40, 8), (0, 7, 1))
COMING = requests((0, 30, 12), (33.3, 5, 20), (71.7, 12, 3), (150.1, 40, 8), (900.9, 7, 6), (1000.3, 9, 2))
KNOBS: dict[str, dict[str, Any]] = {"static_batching": {"max_batch": 2}, "dynamic_batching": {"max_batch": 2}}
LIVE = sorted({"orca", *KNOBS} | set(policies_of(PagedPolicy)))

paces = st.lists(st.tuples(st.floats(0.01, 0.5), st.floats(0.3, 4.0)), min_size=1, max_size=8).map(
    lambda rows: Pace(
        np.array([0.0, *itertools.accumulate(long for long, _ in rows)])[:-1],
        np.array([factor for _, factor in rows]),
    )
)


def times_at(
    pace: Pace | None, name: str, trace: RequestTrace = AT_ONCE
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """First tokens and answers of requests."""
    policy = registry.create("serving", name, KNOBS.get(name, {}))
    plan: ServingPlan
    if isinstance(policy, PagedPolicy):
        settled = policy.settle(ToyPrice(), trace.prompt.tolist())
        plan = simulate_paged(trace, settled, 10**4, ToyPrice(), pace=pace)
    else:
        assert isinstance(policy, ServingPolicy)
        executor = PricedBatches(engine(), trace.output.tolist(), pace)
        plan = simulate(trace, engine(), policy, executor=executor)
    return np.array([[one.first_token, one.answered] for one in plan.served])


@pytest.mark.parametrize("name", LIVE)
def test_at_the_usual_pace_everything_happens_when_it_did(name: str) -> None:
    assert times_at(Pace.steady(1.0), name).tolist() == times_at(None, name).tolist()


@pytest.mark.parametrize("name", LIVE)
@given(pace=paces)
def test_whatever_the_pace_a_moment_is_that_of_the_usual_pace_on_a_changed_clock(
    name: str, pace: Pace
) -> None:
    """Requests that are all there wait for nothing but the host."""
    usual = times_at(None, name)
    changed = [pace.after(0.0, row) for row in usual]
    assert times_at(pace, name) == pytest.approx(np.array(changed), rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(LIVE) - {"dynamic_batching"}))
@given(pace=paces)
def test_requests_that_come_on_the_changed_clock_are_served_on_it(name: str, pace: Pace) -> None:
    """All but ``dynamic_batching``, whose time-out is one of the wall's."""
    usual = times_at(None, name, COMING)
    arrival = pace.after(0.0, COMING.arrival)
    found = times_at(pace, name, replace(COMING, arrival=arrival))
    assert found == pytest.approx(np.array([pace.after(0.0, row) for row in usual]), rel=1e-9)


class Checked(PricedBatches):
    """Repeats a batch until a request of it ends, or a pass ends when the next event is due or later."""

    repeated = 0

    def ends(self, view: ServingView, batch: Batch, until: float) -> tuple[float, ...]:
        found = super().ends(view, batch, until)
        if batch.repeat:
            left = min(self.output[request] - view.generated[request] for request in batch.requests)
            assert len(found) == left or found[-1] >= until > max(found[:-1], default=view.now)
            self.repeated += 1
        return found


@pytest.mark.parametrize("factor", [0.1, 1.0, 3.0])
def test_at_any_pace_a_batch_is_repeated_until_the_next_event(factor: float) -> None:
    policy = registry.create("serving", "orca", {})
    assert isinstance(policy, ServingPolicy)
    trace = requests((0, 5, 60), (500.3 * factor, 5, 5))
    executor = Checked(engine(), trace.output.tolist(), Pace.steady(factor))
    simulate(trace, engine(), policy, executor=executor)
    assert executor.repeated > 0


def test_steps_are_told_at_the_usual_pace_of_their_host() -> None:
    """Readings of 2 ms where 1 is usual: a step of 60 ms takes 30 there."""
    clock = SimpleNamespace(readings=[(place / 50, 2e-3) for place in range(50)])
    executor = SimpleNamespace(clock=clock, timed=[("load", 0.1, 0.16), ("other", 0.16, 0.2)])
    nothing: Any = None
    host = LiveHost(nothing, nothing, nothing, nothing, SimpleNamespace(usual=1e-3))
    told = host.at_usual_pace(executor)
    assert [str(load) for load, *_ in told] == ["load", "other"]
    assert [end - began for _, began, end in told] == pytest.approx([0.03, 0.02])
    bare = replace(host, meter=None).at_usual_pace(executor)
    assert [end - began for _, began, end in bare] == pytest.approx([0.06, 0.04])


def test_a_host_that_halves_its_speed_after_a_second() -> None:
    """Half a second is done before, and two and a half take five."""
    pace = Pace(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    assert pace.after(0.5, np.array([0.25, 0.5, 3.0])).tolist() == [0.75, 1.0, 6.0]
    assert pace.done(6.0) - pace.done(0.5) == 3.0
    assert pace.after(-1.0, np.array([0.5])).tolist() == [-0.5], "before the first moment as from it on"


@given(pace=paces, now=st.floats(0.0, 3.0), seconds=st.floats(0.0, 3.0))
def test_what_is_done_until_the_moment_is_what_was_asked(pace: Pace, now: float, seconds: float) -> None:
    (end,) = pace.after(now, np.array([seconds]))
    assert pace.done(float(end)) - pace.done(now) == pytest.approx(seconds, abs=1e-9)
    fastest, slowest = pace.factors.min(), pace.factors.max()
    assert fastest * seconds - 1e-9 <= end - now <= slowest * seconds + 1e-9


def test_readings_tell_the_pace_of_their_time_and_of_what_lies_between() -> None:
    """Twice as slow from 4 s on; nobody read between 6 and 8 s."""
    moments = [moment for moment in np.arange(0.0, 12.0, 0.05) if not 6 <= moment < 8]
    pace = Pace.of([(moment, 2e-3 if moment >= 4 else 1e-3) for moment in moments], 1e-3)
    assert pace.done(3.5) == pytest.approx(3.5)
    assert pace.done(7.5) - pace.done(4.5) == pytest.approx(1.5)
    assert pace.done(11.5) == pytest.approx(4 + 7.5 / 2, abs=0.05)
    assert Pace.of([], 1e-3).after(1.0, np.array([2.0])).tolist() == [3.0]


class Host:
    """A clock by which a model's step takes its seconds, and from ``slow`` on twice as many."""

    def __init__(self, slow: float = float("inf")) -> None:
        self.now, self.slow, self.steps = 0.0, slow, 0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.steps += 1
        self.now += seconds * (2.0 if self.now >= self.slow else 1.0)


STEP, READING = 0.010, 0.0001


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """An engine's step takes 10 ms there, and a reading of the meter a tenth."""
    host, run = Host(), live.PagedGpt.run

    def run_by_the_clock(model: Any, rows: Any, memory: Any) -> Any:
        host.work(READING if model.vocabulary == pace_meter.VOCABULARY else STEP)
        return run(model, rows, memory)

    monkeypatch.setattr(live.PagedGpt, "run", run_by_the_clock)
    return host


def test_a_meter_reads_no_oftener_than_it_may(host: Host) -> None:
    meter = live.PaceMeter(host)
    for _ in range(100):
        meter.tick()
        host.wait(0.001)
    apart = np.diff([moment for moment, _ in meter.readings])
    assert host.steps == 2 * len(meter.readings), "the first finds the caches as an engine left them"
    assert len(meter.readings) >= 4 and apart.min() >= pace_meter.EVERY
    meter.settle()
    assert meter.usual == pytest.approx(READING, rel=0.05)
    first, host.slow = len(meter.readings), 0.0
    host.wait(pace_meter.EVERY)
    assert meter.factor_since(first) == pytest.approx(1.0, rel=0.05), "nothing new is as it was"
    meter.tick()
    assert meter.factor_since(first) == pytest.approx(2.0, rel=0.05)


class Constant(ToyPrice):
    def seconds(self, load: Any, steps: int = 1) -> Any:
        return np.full(steps, STEP)


def test_a_run_on_a_host_that_slows_down_is_foretold_by_its_meter(host: Host) -> None:
    """Requests further apart than their ten steps take at half the speed.

    At the pace before the run answers are foretold a quarter too early or more.
    """
    model = live.build("zoo:gpt2-tiny", "float32", 0)
    trace = requests(*[(250 * place, 8, 10) for place in range(40)])
    policy = registry.create("serving", "vllm_v1", {"block_size": 4})
    assert isinstance(policy, PagedPolicy)
    meter = live.PaceMeter(host)
    meter.tick()
    meter.settle()
    host.slow = host.now + 4.0
    clock = live.WallClock(host, host.wait, meter)
    executor = live.TorchSteps(model, 400, 4, live.prompts_of(trace, model.vocabulary, 0), clock)
    seen = mean_latency(PagedEngine(trace, policy, 400, executor).run(), trace)
    pace = Pace.of(clock.readings, meter.usual)
    foretold, blind = (
        mean_latency(simulate_paged(trace, policy, 400, Constant(), pace=each), trace)
        for each in (pace, None)
    )
    assert foretold == pytest.approx(seen, rel=0.03)
    assert blind < 0.75 * seen


def mean_latency(plan: ServingPlan, trace: Any) -> float:
    return float(np.mean([one.answered for one in plan.served] - trace.arrival))
