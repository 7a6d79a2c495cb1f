"""The one harness by which times of this host are compared.

Things are timed in rounds, and each round takes each of them once, in an order drawn from a seed: on a busy
host what comes first is interrupted more often, and an order that repeats falls in with what repeats there.
``WARM_UP`` rounds are thrown away (loading, layouts, compiling). Two things are compared pair by pair, so
that what slows a whole round slows both: the figure is the median ratio with its 95 % interval
(``ratios``), and a difference whose interval holds 1, or that goes with a second series of pairs, is none.

Clock: processor time of the calling thread where that thread alone computes, which other work on the host
does not lengthen; else wall time, the device waited for before and after, and a call that others lengthened
is repeated. Which clock is found by making the calls, and said.
"""

from __future__ import annotations

import functools
import math
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from experiments.compilation.live.ratios import Ratio, confirm, ratio_of

#: Rounds that are thrown away, taken at least, and taken at most where there is time for more. Of five the
#: median lies between the first and the last in 94 of 100 cases only.
WARM_UP, LEAST_ROUNDS, MOST_ROUNDS = 2, 6, 200
#: A thread computes alone where all others took at most this share of its time, in one of so many probes of
#: so many seconds (a running thread's time is counted every few milliseconds).
OTHERS, PROBES, PROBE_SECONDS = 0.05, 3, 0.02
#: By the wall's clock a call that took so many times the least so far was disturbed by others. It is repeated
#: so often, and no more after so many seconds: the least of its repeats counts.
DISTURBED, MOST_CALLS, MOST_SECONDS = 2.0, 8, 1.0

Clock = Callable[[], float]
#: What seconds are read off, by what such seconds are called.
WALL, PROCESSOR = "wall time", "processor time"
#: Seconds of a series of pairs.
SECONDS = {WALL: 2.0, PROCESSOR: 1.0}
CLOCKS: Mapping[str, Clock] = {WALL: time.perf_counter, PROCESSOR: time.thread_time}
#: Does what is timed, once or often, and returns the seconds of one call.
Timed = Callable[[], float]


@dataclass(frozen=True)
class Sample:
    """Seconds per call: median and quartiles over ``calls`` calls, and the least disturbed of them."""

    median: float
    lower: float
    upper: float
    calls: int
    least: float


@dataclass(frozen=True)
class Rounds:
    """Seconds of things timed in turn, one for each round."""

    seconds: Mapping[str, Sequence[float]]
    seed: int

    def sample(self, name: str) -> Sample:
        return sample_of(self.seconds[name])

    def with_more(self, other: Rounds) -> Rounds:
        """Return these rounds and those of ``other`` after them."""
        return Rounds({name: [*own, *other.seconds[name]] for name, own in self.seconds.items()}, self.seed)

    def ratio(self, of: str, over: str) -> Ratio:
        """Return the seconds of one over those of another, pair by pair."""
        pairs = zip(self.seconds[of], self.seconds[over], strict=True)
        return ratio_of([one / other for one, other in pairs], self.seed)


@dataclass(frozen=True)
class Comparison:
    """Ours and eager's times, taken in pairs.

    - ``ratio``: eager's seconds over ours.
    - ``clock``: what the seconds were read off.
    - ``spent``: processor seconds of all threads that a call takes, ``ours`` and ``eager``; on a GPU its own.
    - ``load``: load average of the host at the end.
    """

    ours: Sample
    eager: Sample
    ratio: Ratio
    clock: str
    spent: Mapping[str, float]
    load: float

    @property
    def speedup(self) -> float:
        return self.ratio.median

    @property
    def inside_the_noise(self) -> bool:
        return not self.ratio.is_seen

    @property
    def saved(self) -> float:
        """Processor seconds that a call of ours takes less than one of eager."""
        return self.spent["eager"] - self.spent["ours"]

    def break_even(self, compiling: float) -> float | None:
        """Return the calls after which ``compiling`` processor seconds are won back.

        ``None`` where no difference is seen, and where a call saves none.
        """
        return compiling / self.saved if self.ratio.low > 1 and self.saved > 0 else None


def in_turns(
    calls: Mapping[str, Timed],
    seed: int,
    rounds: int = LEAST_ROUNDS,
    seconds: float = 0.0,
    warm_up: int = WARM_UP,
) -> Rounds:
    """Take the seconds of each of ``calls`` in rounds, in an order drawn from ``seed``.

    At least ``rounds`` times, then for ``seconds`` in all.
    """
    draw, order = random.Random(seed), list(calls)
    for _ in range(warm_up):
        for name in order:
            calls[name]()
    taken: dict[str, list[float]] = {name: [] for name in order}
    deadline = time.perf_counter() + seconds
    done = 0
    while done < rounds or (time.perf_counter() < deadline and done < MOST_ROUNDS):
        draw.shuffle(order)
        for name in order:
            taken[name].append(calls[name]())
        done += 1
    return Rounds(taken, seed)


def compare(
    ours: Callable[[], Any], eager: Callable[[], Any], device: str, seed: int, seconds: float | None = None
) -> Comparison:
    """Time single calls of both in pairs for about ``seconds``, those of the clock if not said.

    What differs is timed for as long once more: a difference is one that is seen twice. By the wall's clock,
    which gives few pairs and wide intervals, it is one that is seen in the first series and in both together.
    """
    both = {"ours": ours, "eager": eager}
    clock = choose_clock(list(both.values()), device)
    seconds = SECONDS[clock] if seconds is None else seconds
    spent: dict[str, list[float]] = {name: [] for name in both}
    least = dict.fromkeys(both, math.inf)

    def take(name: str) -> float:
        began = time.process_time()
        found = [mean_seconds(both[name], device, 1, CLOCKS[clock])]
        while clock == WALL and _is_disturbed(found, least[name]):
            found.append(mean_seconds(both[name], device))
        taken = time.process_time() - began
        least[name] = min(least[name], *found)
        spent[name].append(min(found) if device == "cuda" else taken / len(found))
        return min(found)

    calls = {name: functools.partial(take, name) for name in both}
    found = in_turns(calls, seed, seconds=seconds)
    ratio = found.ratio("eager", "ours")
    if ratio.is_seen:
        again = in_turns(calls, seed + 1, seconds=seconds, warm_up=0)
        found = found.with_more(again)
        together = found.ratio("eager", "ours")
        alone = again.ratio("eager", "ours")
        ratio = confirm(ratio, alone, together) if clock == PROCESSOR else together
    medians = {name: statistics.median(seconds[WARM_UP:]) for name, seconds in spent.items()}
    return Comparison(found.sample("ours"), found.sample("eager"), ratio, clock, medians, os.getloadavg()[0])


def _is_disturbed(found: Sequence[float], least: float) -> bool:
    """Whether a call was lengthened by others, and may be repeated."""
    return min(found) > DISTURBED * least and len(found) < MOST_CALLS and sum(found) < MOST_SECONDS


def choose_clock(calls: Sequence[Callable[[], Any]], device: str) -> str:
    """Return ``PROCESSOR`` where the calling thread alone computes all of ``calls``, else ``WALL``."""
    if device == "cpu" and all(_computes_alone(call) for call in calls):
        return PROCESSOR
    return WALL


def _computes_alone(call: Callable[[], Any]) -> bool:
    """Whether no other thread of this process computes during the call, and nothing is waited for."""
    call()
    return any(_probe(call) for _ in range(PROBES))


def _probe(call: Callable[[], Any]) -> bool:
    own, everyone, waits, calls = time.thread_time(), time.process_time(), _waits(), 0
    deadline = time.perf_counter() + PROBE_SECONDS
    while not calls or time.perf_counter() < deadline:
        call()
        calls += 1
    own, everyone = time.thread_time() - own, time.process_time() - everyone
    return everyone - own <= OTHERS * own and _waits() - waits < calls


def _waits() -> int:
    """Return how often this thread gave its processor away to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def time_repeats(
    call: Callable[[], Any], device: str, repeats: int, least: float, clock: Clock = time.perf_counter
) -> list[float]:
    """Return seconds of a call, measured ``repeats`` times after one call to warm up.

    Each time lasts at least ``least`` seconds.
    """
    once = mean_seconds(call, device, 1, clock)
    calls = max(1, int(least / max(once, 1e-9)))
    return [mean_seconds(call, device, calls, clock) for _ in range(repeats)]


def mean_seconds(
    call: Callable[[], Any], device: str, calls: int = 1, clock: Clock = time.perf_counter
) -> float:
    """Return the mean seconds of ``calls`` calls one after the other."""
    _wait(device)
    started = clock()
    for _ in range(calls):
        call()
    _wait(device)
    return (clock() - started) / calls


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def sample_of(values: Sequence[float]) -> Sample:
    """Median and quartiles of the seconds of some calls."""
    lower, median, upper = statistics.quantiles(values, n=4)
    return Sample(median, lower, upper, len(values), min(values))
