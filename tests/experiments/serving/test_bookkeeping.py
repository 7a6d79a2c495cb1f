"""What a step takes besides its layers: by an engine whose seconds are known, and by a real one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.progress import silent
from experiments.serving.experiment.live_engines import between, layer_price, of_one_step, prices_of_engine
from experiments.serving.experiment.measured import engine_of, prepare
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.simulator.step_prices import EnginePrice
from experiments.workloads.profiles.layer_times import Curve
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import requests

pytest.importorskip("torch")
from experiments.serving import live
from experiments.serving.live.bookkeeping import Timed, middle_of

LAYERS, BESIDES, EACH = 0.010, 0.001, 0.0002
NOTHING = Curve((1.0,), (0.0,))


class BySeconds:
    """A token takes so many seconds."""

    def __init__(self, each: float = 1.0) -> None:
        self.each = each

    def seconds(self, load: StepLoad, steps: int = 1) -> Any:
        return np.full(steps, self.each * load.tokens)


def one_after_another(loads: Sequence[StepLoad], seconds: Sequence[float], pause: float = 0.0) -> Timed:
    """Steps that take so long, each after a ``pause``."""
    begins = [sum(seconds[:step]) + step * pause for step in range(len(seconds))]
    return [(load, begin, begin + took) for load, begin, took in zip(loads, begins, seconds, strict=True)]


class MadeUp:
    """An engine that never serves more than ``most`` at once.

    One of its runs was ``held_up`` as a whole. Of eight steps two in a row take ``slow`` s more; one takes
    0.5 s more where others had the processor.
    """

    def __init__(self, most: int, held_up: int, slow: float = 0.0, is_interrupted: bool = False) -> None:
        self.most, self.held_up, self.runs = most, held_up, 0
        self.slow, self.interrupted = slow, 0.5 if is_interrupted else 0.0
        self.prompts: list[list[int]] = []
        self.answers: list[int] = []

    def serve(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Timed:
        self.runs += 1
        self.prompts.append([len(ids) for ids in prompts])
        self.answers += trace.output.tolist()
        count = min(self.most, len(trace))
        load = StepLoad.of([Entry(request, 1, 4) for request in range(count)])
        usual = LAYERS + BESIDES + EACH * count + (5.0 if self.runs == self.held_up else 0.0)
        more = [0.0, self.slow, self.slow, 0.0, self.interrupted, 0.0, 0.0, 0.0, 0.0]
        return one_after_another([load] * len(more), [usual + extra for extra in more])


@functools.cache
def model() -> Any:
    return live.build("zoo:gpt2-mini", "float32", 0)


@functools.cache
def host() -> Any:
    return prepare("zoo:gpt2-tiny", "float32", 0, 16, silent)


def measure(engine: MadeUp, prompts: Sequence[int], layers: float = LAYERS) -> list[Curve]:
    served = engine.serve
    return list(live.measure_bookkeeping(model(), served, lambda load: layers, live.Lengths(prompts, 24), 5))


@pytest.mark.parametrize("held_up", [0, 2])
def test_it_is_what_a_step_takes_beyond_the_layers_for_each_number_of_requests(held_up: int) -> None:
    """A curve of each run; a run that was held up is not the middle one."""
    engine = MadeUp(64, held_up)
    curves = measure(engine, [20, 20])
    assert [curve.points for curve in curves] == [(1, 2, 3, 4, 8, 16, 32)] * 5
    assert middle_of(curves).seconds == pytest.approx(
        [BESIDES + EACH * count for count in (1, 2, 3, 4, 8, 16, 32)]
    )
    assert {length for run in engine.prompts for length in run} == {20}


def test_it_ends_where_a_policy_serves_no_more_at_once() -> None:
    assert {curve.points for curve in measure(MadeUp(4, 0), [10**6])} == {(1, 2, 3, 4)}


def test_where_layers_took_longer_than_the_step_it_is_below_nothing() -> None:
    """A step of 11.2 ms where layers took 12 or 100 ms."""
    (curve, *_) = measure(MadeUp(1, 0), [5], layers=0.012)
    assert curve.seconds == pytest.approx([-0.0008])
    assert measure(MadeUp(1, 0), [5], layers=0.1)[0].seconds == pytest.approx([-0.0888])


def test_a_short_run_happens_when_it_is_asked_for() -> None:
    """Between two of them the run may happen that the first one foretells; one comes before them all."""
    engine = MadeUp(1, 0)
    curves = live.measure_bookkeeping(model(), engine.serve, lambda load: LAYERS, live.Lengths([5], 24), 2)
    assert engine.runs == 0
    next(curves)
    seen = engine.runs
    next(curves)
    assert (seen, engine.runs) == (3, 5)


def test_the_middle_is_of_the_points_that_all_curves_have() -> None:
    curves = [Curve((1, 2, 4), (1.0, 2.0, 3.0)), Curve((1, 2), (3.0, 4.0)), Curve((1, 2), (2.0, 9.0))]
    assert middle_of(curves) == Curve((1, 2), (2.0, 4.0))


def test_the_first_steps_of_all_are_none_of_it() -> None:
    """A process' first run is held up; every curve is of those after it."""
    for curve in measure(MadeUp(2, 1), [20, 20]):
        assert curve.seconds == pytest.approx([BESIDES + EACH, BESIDES + 2 * EACH])


def test_answers_are_as_long_as_those_of_the_trace_up_to_what_the_model_holds() -> None:
    """Of 3 and 9 tokens 6 in the mean, of thousands 128; half of the positions where a model has few."""
    few, many = requests((0, 8, 3), (0, 8, 9)), requests((0, 8, 5000))
    assert [live.Lengths.of(trace).answer for trace in (few, many)] == [6, 128]
    small = live.build("zoo:gpt2-tiny", "float32", 0)
    drawn = live.Lengths([10**6], 10**6).draw(small, np.zeros(3))
    assert set(drawn.output.tolist()) == {small.positions // 2}
    assert set((drawn.prompt + drawn.output).tolist()) == {min(256 + small.positions // 2, small.positions)}


@pytest.mark.parametrize(("layers", "steps"), [(0.001, 100), (0.01, 28), (1.0, 24)])
def test_steps_that_take_long_are_timed_for_fewer_tokens(layers: float, steps: int) -> None:
    """Seven numbers of requests in two seconds: 286, 28 and 0 steps each, of 100 and no fewer than 24."""
    engine = MadeUp(64, 0)
    list(live.measure_bookkeeping(model(), engine.serve, lambda load: layers, live.Lengths([8], 100), 1))
    assert set(engine.answers) == {steps}


def test_each_number_of_requests_is_timed_for_as_long() -> None:
    """Two sevenths of a second each, at 5 ms a request: 57 steps of one, 28 of two, and no fewer than 24."""
    engine, lengths = MadeUp(64, 0), live.Lengths([8], 100)
    list(live.measure_bookkeeping(model(), engine.serve, lambda load: 0.005 * load.sequences, lengths, 1))
    assert engine.answers[1:64] == [57] + [28] * 2 + [24] * 60


def test_slow_steps_count_also_those_in_which_others_had_the_processor() -> None:
    """Two of eight steps take 4 ms more, one takes 0.5 s more: a run meets them as often."""
    (curve, *_) = measure(MadeUp(1, 0, slow=0.004), [5])
    assert curve.seconds[0] == pytest.approx(BESIDES + EACH + 0.001)
    (curve, *_) = measure(MadeUp(1, 0, slow=0.004, is_interrupted=True), [5])
    assert curve.seconds[0] == pytest.approx(BESIDES + EACH + 0.508 / 8)


def test_prompts_are_as_unequal_as_those_of_the_trace() -> None:
    """Of 8 and 24 tokens; of 200 and 600 they are shortened to a mean of 256, whose ratio stays."""
    short, long = MadeUp(64, 0), MadeUp(64, 0)
    measure(short, [24, 8, 24, 8])
    measure(long, [600, 200])
    assert short.prompts[4] == [8, 8, 24, 24] and short.prompts[2] == [8, 24]
    assert long.prompts[2] == [128, 384]


class Coming:
    """An engine whose steps take ``seconds`` by their tokens, each after a ``pause``."""

    def __init__(self, seconds: dict[int, float], pause: float) -> None:
        self.seconds, self.pause = seconds, pause
        self.arrival: list[float] = []

    def serve(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Timed:
        self.arrival = trace.arrival.tolist()
        tokens = [8, 1, 8, 1, 8, 16, 1, 8]
        loads = [StepLoad.of([Entry(0, count, 0)]) for count in tokens]
        return one_after_another(loads, [self.seconds[count] for count in tokens], self.pause)


@pytest.mark.parametrize("pause", [0.0, 2.0])
def test_prompts_take_so_many_times_their_price_whatever_they_were_waited_for(pause: float) -> None:
    """Priced at 0.1 s a token, 8 took 0.9 s three times and 16 took 1.7 s: 4.4 of 4.0 s.

    A prompt and a quarter of 24 decodes come between two of them, so that four are there at once.
    """
    engine, price = Coming({1: 0.1, 8: 0.9, 16: 1.7}, pause), of_one_step(BySeconds(0.1).seconds)
    share = live.measure_prompts(model(), engine.serve, price, price, live.Lengths([8, 8], 24))
    assert share == pytest.approx(1.1)
    assert engine.arrival == pytest.approx([1.4 * request for request in range(32)])


@pytest.mark.parametrize("pause", [0.0, 2.0])
def test_a_step_behind_a_pause_takes_longer_by_what_was_seen_of_prompts_that_come_alone(pause: float) -> None:
    """Priced at 0.1 s a token, 8 took 0.9 s and 16 took 1.7 s, where the engine had waited: 0.1 s more.

    A longest prompt of 16 tokens, two tokens of an answer and a tenth of a second come between two of them.
    """
    engine = Coming({1: 0.1, 8: 0.9, 16: 1.7}, pause)
    price = of_one_step(BySeconds(0.1).seconds)
    more = live.measure_waking(model(), engine.serve, price, live.Lengths([8, 16], 24))
    assert more == (pytest.approx(0.1) if pause else None)
    assert engine.arrival[:2] == pytest.approx([0.0, 1.6 + 0.2 + 0.1])


def test_a_pause_that_the_engine_stays_awake_in_costs_nothing() -> None:
    price = EnginePrice(BySeconds(), NOTHING, waking=0.25)  # type: ignore[arg-type]
    assert [price.wake_seconds(idle) for idle in (0.004, 0.006, 9.0)] == [0.0, 0.25, 0.25]
    slower = EnginePrice(BySeconds(), NOTHING, waking=-0.25)  # type: ignore[arg-type]
    assert slower.wake_seconds(1.0) == 0.0, "nothing is faster for having waited"


def test_between_two_short_runs_waking_takes_their_mean_or_what_the_one_has_that_saw_any() -> None:
    prices = [EnginePrice(BySeconds(), NOTHING, waking=one) for one in (0.1, 0.3, None)]  # type: ignore[arg-type]
    assert between(prices[:2]).waking == pytest.approx(0.2)
    assert between(prices[1:]).waking == 0.3
    assert between(prices[2:]).waking is None


class Verifying:
    """An engine that verifies two drafts in 0.3 s, and takes 0.5 s more where a prompt comes as well."""

    def serve(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Timed:
        verified, prompt = Entry(0, 3, 6), Entry(1, 4, 0)
        loads = [StepLoad.of([verified, prompt] if row % 2 else [verified], {0}) for row in range(8)]
        return one_after_another(loads, [0.3, 0.8] * 4)


def test_prompts_among_verified_drafts_are_priced_by_what_they_add() -> None:
    """By their price they add 0.4 s to 0.3 s, and take 0.5 s."""
    price = EnginePrice(BySeconds(0.1), NOTHING)  # type: ignore[arg-type]
    by_step = (of_one_step(price.seconds), of_one_step(price.prompt_seconds))
    share = live.measure_prompts(model(), Verifying().serve, *by_step, live.Lengths([8], 24))
    assert share == pytest.approx(1.25)


def test_without_a_step_of_prompts_their_price_stands() -> None:
    def price(load: StepLoad) -> float:
        return 0.1

    assert live.measure_prompts(model(), MadeUp(4, 0).serve, price, price, live.Lengths([8], 24)) == 1.0


def test_only_what_prompts_add_takes_longer_and_neither_decodes_nor_verified_drafts() -> None:
    """A prompt of 6 tokens next to a decode and two drafts: 4 s, and 1.5 times 6 s."""
    price, prompt, others = (
        EnginePrice(BySeconds(), NOTHING, 1.5),
        Entry(0, 6, 0),
        [Entry(1, 1, 6), Entry(2, 3, 6)],
    )  # type: ignore[arg-type]
    alone, both = StepLoad.of(others, {2}), StepLoad.of([prompt, *others], {2})
    assert both.without_prompts() == alone
    assert price.seconds(alone).tolist() == [4.0]
    assert price.seconds(both).tolist() == [13.0]
    assert price.seconds(StepLoad.of([prompt])).tolist() == [9.0]
    assert price.seconds(StepLoad.of([prompt, others[0]]), 2).tolist() == [10.0, 10.0]


@pytest.mark.parametrize("name", ["vllm_v1", "orca", "static_batching"])
def test_a_real_engine_serves_so_many_at_once_whatever_it_pads(name: str) -> None:
    """One prompt of 100 among 11 of 3 tokens: each of up to eight requests has its place."""
    trace = requests(*[(0, 3 if row else 100, 2) for row in range(12)])
    knobs = {"max_batch": 8} | ({"block_size": 4} if name == "vllm_v1" else {})
    made = registry.create("serving", name, knobs)
    with live.one_thread():
        prices = prices_of_engine(engine_of(host(), trace, made), 2, 0)
    assert {price.besides.points for price in prices} == {(1, 2, 3, 4, 8)}


class Paced:
    """A real engine's short runs at paces of their own: each step takes so many times its layers."""

    def __init__(self, made: Any, price: Any, paces: Sequence[float]) -> None:
        self.host, self.trace = made.host, made.trace
        self.made, self.price, self.paces = made, price, list(paces)

    def time_steps(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Timed:
        """The steps that the engine made, with the times that they would have had."""
        pace = self.paces[0] if len(trace) > 1 or len(self.paces) == 1 else self.paces.pop(0)
        loads = [load for load, *_ in self.made.time_steps(trace, prompts)]
        return one_after_another(loads, [pace * self.price(load) for load in loads])


def bare_price(step: StepLoad) -> float:
    """Seconds of a step's layers by the host's profile alone."""
    times = host().times
    bare = replace(times, by_sequences={**times.by_sequences, "bookkeeping": NOTHING})
    return layer_price(bare, host().served)(step)


@pytest.mark.parametrize("name", ["vllm_v1", "orca"])
@pytest.mark.parametrize("pace", [0.7, 1.0, 1.6])
def test_layers_that_were_timed_at_another_pace_are_put_right(name: str, pace: float) -> None:
    """Also where the host is faster now than while its layers were timed."""
    trace = requests(*[(0, 6, 20)] * 12)
    made = engine_of(host(), trace, registry.create("serving", name, {"max_batch": 8}))
    with live.one_thread():
        (price,) = prices_of_engine(Paced(made, bare_price, [pace]), 1, 0)  # type: ignore[arg-type]
    for load in (decodes_of(1), decodes_of(3), decodes_of(8)):
        assert float(price.seconds(load)[0]) == pytest.approx(pace * bare_price(load), rel=0.15)


def decodes_of(count: int) -> StepLoad:
    return StepLoad.of([Entry(request, 1, 16) for request in range(count)])


def test_between_two_short_runs_a_host_is_in_the_middle_of_them() -> None:
    """Besides of 1 and 3 s, and prompts at once and twice their price."""
    prices = [
        EnginePrice(BySeconds(), Curve((1.0, 8.0), (seconds, seconds)), prompts)  # type: ignore[arg-type]
        for seconds, prompts in ((1.0, 1.0), (3.0, 2.0))
    ]
    middle = between(prices)
    assert middle.seconds(decodes_of(4)).tolist() == [6.0]
    assert middle.seconds(StepLoad.of([Entry(0, 6, 0), Entry(1, 1, 9)])).tolist() == [1.0 + 2.0 + 1.5 * 6.0]


def test_no_more_than_half_of_the_layers_is_taken_off() -> None:
    price = EnginePrice(BySeconds(), Curve((1.0, 8.0), (-1.0, -3.0)), -2.0)  # type: ignore[arg-type]
    assert [float(price.seconds(decodes_of(count))[0]) for count in (1, 3, 8)] == pytest.approx(
        [0.5, 1.5, 5.0]
    )
    assert price.seconds(StepLoad.of([Entry(0, 6, 0)])).tolist() == [3.0]


@given(
    st.dictionaries(st.integers(1, 64), st.floats(-1, 1), min_size=1, max_size=6),
    st.integers(1, 100),
)
def test_a_curve_has_the_same_seconds_at_one_place_as_at_many(found: dict[int, float], place: int) -> None:
    """What corrects layers downward is below 0 between its points."""
    points = tuple(map(float, sorted(found)))
    curve = Curve(points, tuple(found[int(point)] for point in points))
    assert curve.at(float(place)) == pytest.approx(float(curve.at(np.array([float(place)]))[0]), abs=1e-9)


def test_what_requests_have_besides_is_taken_once_whatever_prompts_take() -> None:
    """Curves of a shared host go up and down; a prompt costs no more for it."""
    besides = Curve((1.0, 2.0), (5.0, 3.0))
    price, prompt = EnginePrice(BySeconds(), besides, 2.0), Entry(0, 6, 0)  # type: ignore[arg-type]
    assert price.seconds(StepLoad.of([prompt])).tolist() == [5.0 + 2.0 * 6.0]
    assert price.seconds(StepLoad.of([prompt, Entry(1, 1, 6)])).tolist() == [3.0 + 1.0 + 2.0 * 6.0]


def test_a_step_begins_as_the_one_before_it_ended_or_after_a_wait() -> None:
    moment = 100.0

    def go_on(seconds: float) -> None:
        nonlocal moment
        moment += seconds + 0.005

    clock = live.WallClock(lambda: moment, go_on)
    clock.reach(2.0)
    go_on(0.495)
    assert clock.end_step() == pytest.approx((2.0, 2.5))
    clock.reach(1.0)
    go_on(0.495)
    assert clock.end_step() == pytest.approx((2.5, 3.0))
    clock.reach(4.0)
    go_on(1.245)
    assert clock.end_step() == pytest.approx((4.0, 5.25))
