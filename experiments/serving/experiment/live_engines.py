"""Engines of this host under a policy: what they would take, by the simulator, and what they do, by torch."""

from __future__ import annotations

import dataclasses
import importlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core.progress import Progress
from experiments.hardware import Hardware
from experiments.models.served import ServedModel
from experiments.serving.experiment.batching import kv_slots, longest_answer, refuse_short_reservations
from experiments.serving.experiment.paged import list_settled
from experiments.serving.interface import Engine, ServingPlan, ServingPolicy
from experiments.serving.interface.executor import StepExecutor
from experiments.serving.interface.pace import Pace
from experiments.serving.interface.paged import PagedPolicy, PagedView, StepFiller
from experiments.serving.interface.step_load import StepLoad, StepPrice
from experiments.serving.simulator import simulate
from experiments.serving.simulator.paged import PagedEngine, simulate_paged
from experiments.serving.simulator.priced import PricedBatches
from experiments.serving.simulator.step_prices import EnginePrice, ProfilePrice, StepCost
from experiments.workloads.profiles.layer_times import Curve, LayerTimes
from experiments.workloads.requests import RequestTrace

#: Bytes of KV memory where no number of blocks is told.
KV_BYTES = 2e9


@dataclass(frozen=True)
class LiveHost:
    """A model that was built on a device of this host, and what its layers take.

    ``meter`` of the host's pace, where steps are its processor's.
    """

    model: Any
    served: ServedModel
    times: LayerTimes
    hardware: Hardware
    meter: Any = None

    @property
    def price(self) -> ProfilePrice:
        return ProfilePrice(self.times, self.served)

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token."""
        return self.served.kv_bytes_per_token(self.model.dtype.itemsize)

    @property
    def slots(self) -> int:
        """Tokens of KV memory: what fits next to the weights on a GPU, ``KV_BYTES`` on a processor."""
        if not self.model.on_cuda:
            return int(KV_BYTES / self.token_bytes)
        return kv_slots(self.served, self.hardware, self.model.dtype.itemsize)

    def start_clock(self) -> Any:
        """A clock for a run, between whose steps the host's pace is read."""
        return importlib.import_module("experiments.serving.live").WallClock(meter=self.meter)

    def pace_of(self, clock: Any) -> Pace:
        """How fast the host was while ``clock`` ran."""
        return Pace.of(clock.readings, self.meter.usual) if self.meter else Pace.steady(1.0)

    def at_usual_pace(self, executor: Any) -> list[tuple[StepLoad, float, float]]:
        """The steps of an executor, and when each would have begun and ended at the host's usual pace."""
        done = self.pace_of(executor.clock).done
        return [(load, done(began), done(end)) for load, began, end in executor.timed]


def layer_price(times: LayerTimes, served: ServedModel) -> Callable[[StepLoad], float]:
    """Return what prices a step by a layer profile."""
    return of_one_step(ProfilePrice(times, served).seconds)


def of_one_step(seconds: Callable[[StepLoad], Any]) -> Callable[[StepLoad], float]:
    """Return what gives the seconds of a single step."""
    return lambda load: float(seconds(load)[0])


class LivePaged:
    """A policy over KV blocks; all requests together need ``blocks`` at most."""

    def __init__(self, host: LiveHost, trace: RequestTrace, policy: PagedPolicy) -> None:
        self.host, self.trace = host, trace
        self.policy = policy.settle(host.price, trace.prompt.tolist())
        size = policy.block_size
        wanted = int(np.sum(-(-(trace.prompt + trace.output) // size)))
        self.blocks = policy.blocks or max(1, min(wanted, host.slots // size))
        self.slots = self.blocks * size
        self.told = {"blocks": self.blocks, "block_size": size, **list_settled(policy, self.policy)}

    def simulate(
        self, trace: RequestTrace, price: StepPrice, seed: int, pace: Pace | None = None
    ) -> ServingPlan:
        context = self.host.served.context
        return simulate_paged(trace, self.policy, self.blocks, price, context, seed=seed, pace=pace)

    def time_steps(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Any:
        """Serve another trace from blocks enough for all of it: its steps at the usual pace."""
        served = serve_all(self.host.model, self.policy, trace, prompts, self.host.start_clock())
        return self.host.at_usual_pace(served)

    def carry_out(self, prompts: Sequence[Sequence[int]], progress: Progress) -> tuple[ServingPlan, Pace]:
        """What became of the requests, and the pace that the host had."""
        live, clock = importlib.import_module("experiments.serving.live"), self.host.start_clock()
        executor = live.TorchSteps(self.host.model, self.blocks, self.policy.block_size, prompts, clock)
        context = self.host.served.context
        engine = PagedEngine(self.trace, self.policy, self.blocks, executor, context, progress)
        return engine.run(), self.host.pace_of(clock)


class LiveBatches:
    """A policy that reserves slots, for all requests together at most.

    There is one stage, whose passes are priced by the layers as well.
    """

    def __init__(self, host: LiveHost, trace: RequestTrace, policy: ServingPolicy) -> None:
        self.host, self.trace, self.policy = host, trace, policy
        most = len(trace) * int(trace.prompt.max() + trace.output.max())
        self.slots, context = min(host.slots, most), host.served.context
        longest = longest_answer(trace, self.slots, context)
        refuse_short_reservations(policy, longest)
        self.engine = Engine(StepCost(host.price), self.slots, longest, context=context)
        self.told = {"kv_slots": self.slots, "max_output": self.engine.max_output, "stages": 1}

    def simulate(
        self, trace: RequestTrace, price: StepPrice, seed: int, pace: Pace | None = None
    ) -> ServingPlan:
        engine = dataclasses.replace(self.engine, cost=StepCost(price))
        executor = PricedBatches(engine, trace.output.tolist(), pace)
        return simulate(trace, engine, self.policy, executor=executor)

    def time_steps(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Any:
        """Serve another trace from slots enough for all of it, padded: its passes at the usual pace."""
        live, clock = importlib.import_module("experiments.serving.live"), self.host.start_clock()
        slots = len(trace) * int(trace.prompt.max() + trace.output.max())
        executor = live.TorchBatches(trace, self.host.model, slots, prompts, clock)
        engine = dataclasses.replace(self.engine, kv_slots=slots, max_output=int(trace.output.max()))
        simulate(trace, engine, self.policy, executor=executor)
        return self.host.at_usual_pace(executor)

    def carry_out(self, prompts: Sequence[Sequence[int]], progress: Progress) -> tuple[ServingPlan, Pace]:
        """What became of the requests, and the pace that the host had."""
        live, clock = importlib.import_module("experiments.serving.live"), self.host.start_clock()
        executor = live.TorchBatches(self.trace, self.host.model, self.slots, prompts, clock)
        plan = simulate(self.trace, self.engine, self.policy, progress, executor)
        return plan, self.host.pace_of(clock)


@dataclass(frozen=True)
class AllAtOnce(PagedPolicy):
    """Admits whoever waits and decodes for all: no policy that anybody would choose."""

    def begin(self) -> StepFiller:
        return _Fill()


class _Fill:
    def fill(self, view: PagedView) -> bool:
        while view.waiting:
            view.admit(view.waiting[0], view.prompt[view.waiting[0]])
        if not view.entries:
            view.extend_all()
        return False


def serve_all(
    model: Any, policy: PagedPolicy, trace: RequestTrace, prompts: Sequence[Sequence[int]], clock: Any = None
) -> Any:
    """Serve ``trace`` from blocks enough for all of it; return the executor, which timed its steps."""
    live = importlib.import_module("experiments.serving.live")
    size = policy.block_size
    blocks = int(np.sum(-(-(trace.prompt + trace.output) // size) + 1))
    executor = live.TorchSteps(model, blocks, size, prompts, clock)
    run_steps(trace, policy, blocks, executor)
    return executor


def run_steps(trace: RequestTrace, policy: PagedPolicy, blocks: int, executor: StepExecutor) -> ServingPlan:
    """Serve ``trace`` by an executor's steps."""
    return PagedEngine(trace, policy, blocks, executor).run()


def prices_of_engine(engine: LivePaged | LiveBatches, runs: int, seed: int) -> Iterator[EnginePrice]:
    """Yield what steps cost under the policy of ``engine`` by each of ``runs`` short runs on other prompts.

    These are made when they are asked for. The price is that at the usual pace of the host.
    """
    live, host = importlib.import_module("experiments.serving.live"), engine.host
    nothing = {**host.times.by_sequences, "bookkeeping": Curve((1.0,), (0.0,))}
    layers = ProfilePrice(dataclasses.replace(host.times, by_sequences=nothing), host.served)
    seen = (engine.time_steps, of_one_step(layers.seconds), live.Lengths.of(engine.trace))
    first = len(host.meter.readings) if host.meter else 0
    for besides in live.measure_bookkeeping(host.model, *seen, runs, seed + 1):
        price = _price_prompts(engine, EnginePrice(layers, besides), seed + 1)
        if host.meter:
            price = dataclasses.replace(price, pace=host.meter.factor_since(first))
            first = len(host.meter.readings)
        yield price


def _price_prompts(engine: LivePaged | LiveBatches, price: EnginePrice, seed: int) -> EnginePrice:
    """Prompts by two more short runs: among others, and alone behind a pause."""
    live = importlib.import_module("experiments.serving.live")
    prices, lengths = (
        (of_one_step(price.seconds), of_one_step(price.prompt_seconds)),
        live.Lengths.of(engine.trace),
    )
    share = live.measure_prompts(engine.host.model, engine.time_steps, *prices, lengths, seed)
    price = dataclasses.replace(price, prompts=share)
    waking = live.measure_waking(
        engine.host.model, engine.time_steps, of_one_step(price.seconds), lengths, seed
    )
    return dataclasses.replace(price, waking=waking)


def between(prices: Sequence[EnginePrice]) -> EnginePrice:
    """Return what steps cost in the middle of what short runs before and after them say."""
    live = importlib.import_module("experiments.serving.live")
    besides = live.middle_of([price.besides for price in prices])
    prompts = statistics.fmean(price.prompts for price in prices)
    waking = [price.waking for price in prices if price.waking is not None]
    return dataclasses.replace(
        prices[0],
        besides=besides,
        prompts=prompts,
        waking=statistics.fmean(waking) if waking else None,
        pace=statistics.fmean(price.pace for price in prices),
    )
