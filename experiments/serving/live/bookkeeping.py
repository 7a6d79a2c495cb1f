"""What a step of an engine takes besides its layers: policy, filling, drafts, indices of blocks, records.

Layers by themselves are timed again and again, and stay in the caches; between steps the engine's own work
drives them out. That is in here, too: it is seen in short runs of the engine, less what the layers say.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.live.model import PagedGpt
from experiments.serving.live.prompts import prompts_of
from experiments.workloads.profiles.layer_times import Curve
from experiments.workloads.requests import RequestTrace

Floats = npt.NDArray[np.float64]
#: Steps of a run: the load of each, and when it began and ended.
Timed = Sequence[tuple[StepLoad, float, float]]
#: An engine under a policy: it answers the prompts of a trace.
Serve = Callable[[RequestTrace, Sequence[Sequence[int]]], Timed]
#: Seconds of a step by the layers alone.
Price = Callable[[StepLoad], float]
#: Requests at once, and tokens of a prompt and of an answer in the mean at most.
SEQUENCES, PROMPT, ANSWER = (1, 2, 3, 4, 8, 16, 32), 256, 128
#: Requests that come one after another for their prompts to be timed, and how many of them are there at once.
COMING, AMONG = 32, 4
#: Requests that come to an engine with nothing to do, tokens of their answers, and seconds that it waits.
ALONE, SHORT, PAUSE = 8, 2, 0.1
#: Steps of one run take about so many seconds, each number of requests as long, but are this many at least.
RUN_SECONDS, FEWEST = 2.0, 24


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompts that short runs resemble, and of an answer, fewer where a model has no place."""

    prompts: Sequence[int]
    answer: int

    @classmethod
    def of(cls, trace: RequestTrace) -> Lengths:
        """Those of a trace, no longer in the mean than ``PROMPT`` and ``ANSWER``."""
        return cls(trace.prompt.tolist(), max(2, min(ANSWER, round(float(trace.output.mean())))))

    def draw(
        self, model: PagedGpt, arrival: npt.NDArray[np.float64], seed: int | None = None
    ) -> RequestTrace:
        """A trace with prompts from the shortest to the longest; in the order of a ``seed``, if one is given.

        They are shortened alike.
        """
        count, answer = len(arrival), min(self.answer, model.positions // 2)
        scale = min(1.0, PROMPT / float(np.mean(self.prompts)))
        shares = (np.arange(count) + 0.5) / count
        found = np.quantile(np.asarray(self.prompts), shares, method="nearest") * scale
        prompt = np.clip(np.rint(found), 1, model.positions - answer).astype(np.int64)
        if seed is not None:
            prompt = np.random.default_rng(seed).permutation(prompt)
        return RequestTrace("calibration", arrival, prompt, np.full(count, answer), ("",) * count)


def measure_bookkeeping(
    model: PagedGpt, serve: Serve, price: Price, lengths: Lengths, runs: int, seed: int = 0
) -> Iterator[Curve]:
    """Yield the seconds of a step besides its ``price``, by requests in it, of each of ``runs`` short runs.

    They are below 0 where the host was slower as the price's layers were timed.
    A run is carried out when it is asked for. Prompts have tokens drawn from ``seed``. Where a policy never
    serves so many at once, the curves end before. The first steps of a process are much slower than any later
    ones, so one run comes before.
    """
    _measure_once(model, serve, price, lengths, seed, SEQUENCES[:1])
    for _ in range(runs):
        found = _measure_once(model, serve, price, lengths, seed, SEQUENCES)
        yield Curve(tuple(map(float, found)), tuple(found.values()))


def middle_of(runs: Sequence[Curve]) -> Curve:
    """Return the median of the curves at each point that all have."""
    points = min((run.points for run in runs), key=len)
    middle = np.median([run.seconds[: len(points)] for run in runs], axis=0)
    return Curve(points, tuple(middle.tolist()))


def measure_prompts(
    model: PagedGpt, serve: Serve, price: Price, added: Price, lengths: Lengths, seed: int = 0
) -> float:
    """Return how many times what they add to a step's ``price`` prompts take among decodes of others.

    Some requests are answered at once. 1 where a policy makes no step with prompts after the first.
    """
    trace = lengths.draw(model, np.arange(COMING, dtype=np.float64), seed)
    usual = int(trace.prompt.mean())
    prompt, decode = (price(StepLoad.of([entry])) for entry in (Entry(0, usual, 0), Entry(0, 1, usual)))
    trace = replace(trace, arrival=trace.arrival * (prompt + decode * lengths.answer / AMONG))
    timed = serve(trace, prompts_of(trace, model.vocabulary, seed))
    steps = [(end - began, load) for load, began, end in timed[1:] if load.has_prompts]
    more = sum(seconds - price(load) for seconds, load in steps)
    whole = sum(added(load) for _, load in steps)
    return 1.0 + more / whole if whole > 0 else 1.0


def measure_waking(
    model: PagedGpt, serve: Serve, price: Price, lengths: Lengths, seed: int = 0
) -> float | None:
    """Return by how much the ``price`` of a prompt is exceeded where the engine waited for it (s, a mean).

    ``None`` where it never waits: a policy that begins with a whole batch alone.
    """
    trace = replace(lengths, answer=SHORT).draw(model, np.arange(ALONE, dtype=np.float64), seed)
    longest = int(trace.prompt.max())
    prompt, decode = (price(StepLoad.of([entry])) for entry in (Entry(0, longest, 0), Entry(0, 1, longest)))
    trace = replace(trace, arrival=trace.arrival * (prompt + SHORT * decode + PAUSE))
    timed = serve(trace, prompts_of(trace, model.vocabulary, seed))
    ends = [end for _, _, end in timed]
    woken = [
        end - began - price(load)
        for (load, began, end), before in zip(timed[1:], ends, strict=False)
        if load.has_prompts and began > before
    ]
    return statistics.fmean(woken) if woken else None


def _measure_once(
    model: PagedGpt,
    serve: Serve,
    price: Price,
    lengths: Lengths,
    seed: int,
    sequences: Sequence[int],
) -> dict[int, float]:
    """Seconds besides the price, by requests at once."""
    found: dict[int, float] = {}
    for requests in sequences:
        answer = min(lengths.answer, _most_steps(price, requests))
        trace = replace(lengths, answer=answer).draw(model, np.zeros(requests))
        timed = serve(trace, prompts_of(trace, model.vocabulary, seed))
        steps = [(end - began, price(load)) for load, began, end in timed[1:] if load.sequences == requests]
        if not steps:
            break
        found[requests] = _mean_besides(steps)
    return found


def _most_steps(price: Price, requests: int) -> int:
    """Steps with so many requests: fewer where they take long."""
    seconds = price(StepLoad.of([Entry(request, 1, PROMPT) for request in range(requests)]))
    return max(FEWEST, int(RUN_SECONDS / len(SEQUENCES) / seconds)) if seconds else ANSWER


def _mean_besides(steps: Sequence[tuple[float, float]]) -> float:
    """A mean, as a run is a sum of its steps.

    Some of them find the caches empty, behind a prompt for one, and in some others have the processor.
    """
    return statistics.fmean(seconds - priced for seconds, priced in steps)
