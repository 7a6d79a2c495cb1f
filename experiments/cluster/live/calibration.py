"""What jobs take on this host, measured before the run with jobs that are none of it: seconds of a step by
model and number of slots, of a start, and of a checkpoint.

As in the run, the other slots are busy meanwhile: with the other models where one slot is timed, with copies
of the same otherwise.
"""

from __future__ import annotations

import math
import selectors
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cluster.live.gang_process import GangProcess, load_libraries, start
from experiments.cluster.live.slots import Slots
from experiments.core.errors import LabError
from experiments.core.progress import Progress

#: Seconds for which a model's steps are counted, and for which a process may take to begin or to stop.
SECONDS, PATIENCE = 2.0, 120.0
ENDLESS = 10**12


@dataclass(frozen=True)
class MeasuredBatches:
    """One model at several batches.

    ``steps``  by slots: samples that each takes at once, seconds of a step, and of it for the exchange.
    ``noise``  steps of the initial batch done, and the gradient's squared norm and variance there.
    """

    steps: Mapping[int, tuple[tuple[int, float, float], ...]]
    noise: tuple[tuple[float, float, float], ...]

    def step_seconds(self, slots: int, each: float) -> float:
        """Seconds of a step with so many samples at once, between those that were measured."""
        batch, step, _ = zip(*self.steps[slots], strict=True)
        return float(np.interp(each, batch, step))

    def scale(self, factors: Mapping[int, float]) -> MeasuredBatches:
        """The same with steps so many times as long, by slots."""
        steps = {
            slots: tuple((batch, step * factors[slots], sync * factors[slots]) for batch, step, sync in rows)
            for slots, rows in self.steps.items()
        }
        return replace(self, steps=steps)

    def describe(self) -> Mapping[str, Any]:
        return {
            "steps": {f"{each} on each of {k}": row for k, rows in self.steps.items() for each, *row in rows},
            "noise": [list(row) for row in self.noise],
        }


@dataclass(frozen=True)
class Calibration:
    """``step_seconds`` by model and slots; ``start`` until the first step, ``save`` until one has stopped.

    - ``computing``: processor seconds of a step in each process, where that is known; it waits for the rest.
    - ``batches``: by model, what was measured at other batches, where a scheduler chooses them.
    - ``step_spread`` and ``start_spread``: the standard deviation among gangs that did the same, relative.
    - ``crowding``: how many times as long a model computes a step where another has the rest of its slot, by
      both; ``crowded_start`` the same of a start.
    """

    step_seconds: Mapping[tuple[str, int], float]
    start: float
    save: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    computing: Mapping[tuple[str, int], float] = field(default_factory=dict)
    batches: Mapping[str, MeasuredBatches] = field(default_factory=dict)
    step_spread: float = 0.0
    start_spread: float = 0.0
    crowding: Mapping[tuple[str, str], float] = field(default_factory=dict)
    crowded_start: float = 1.0

    def computing_seconds(self, model: str, size: int) -> float:
        """Processor seconds of a step; all of it where nothing else is known."""
        return self.computing.get((model, size), self.step_seconds[model, size])

    def paced_seconds(self, model: str, size: int, share: float) -> float:
        """Seconds of a step of processes that may compute for a ``share`` of the time."""
        return max(self.step_seconds[model, size], self.computing_seconds(model, size) / share)

    def describe(self) -> Mapping[str, Any]:
        return {
            "step_seconds": {f"{model} on {k}": took for (model, k), took in self.step_seconds.items()},
            "computing_seconds": {f"{model} on {k}": took for (model, k), took in self.computing.items()},
            "start_seconds": self.start,
            "checkpoint_seconds": self.save,
            "step_spread": self.step_spread,
            "start_spread": self.start_spread,
            **(
                {"batches": {name: one.describe() for name, one in self.batches.items()}}
                if self.batches
                else {}
            ),
            **(self._describe_crowding() if self.crowding else {}),
            **self.facts,
        }

    def draw(self, rng: np.random.Generator) -> Calibration:
        """Another that this host might have given: as far from this one as gangs are from each other."""
        factors = {pair: math.exp(rng.normal(0.0, self.step_spread)) for pair in sorted(self.step_seconds)}
        return replace(
            self,
            step_seconds={pair: took * factors[pair] for pair, took in self.step_seconds.items()},
            start=self.start * math.exp(rng.normal(0.0, self.start_spread)),
            computing={pair: took * factors[pair] for pair, took in self.computing.items()},
            batches={
                model: one.scale({size: factors[model, size] for size in one.steps})
                for model, one in self.batches.items()
            },
        )

    def _describe_crowding(self) -> Mapping[str, Any]:
        steps = {f"{model} with {other}": times for (model, other), times in self.crowding.items()}
        return {"crowding": steps, "crowded_start": self.crowded_start}


@dataclass(frozen=True)
class Placed:
    """What a gang of the calibration trains, and on which slots."""

    training: Mapping[str, Any]
    devices: Sequence[int]


@dataclass(frozen=True)
class Timed:
    """One gang's seconds: until its first step, of a step, and from the word to stop until it had exited.

    ``computing``: processor seconds of a step in one process.
    """

    start: float
    step: float
    stop: float
    computing: float


def calibrate(
    wanted: Iterable[tuple[str, int]], slots: Slots, folder: Path, seed: int, progress: Progress
) -> Calibration:
    """Time each model on each number of slots in ``wanted``, with all slots at work."""
    pairs = sorted(set(wanted))
    timed: dict[tuple[str, int], list[Timed]] = {}
    for done, (model, size) in enumerate(pairs):
        progress(done / len(pairs), f"timing {model} on {size} {'slot' if size == 1 else 'slots'}")
        models = models_together(model, size, pairs, slots)
        found = _time_together(models, size, slots, folder / f"{model}-{size}", seed)
        for name, one in found:
            timed.setdefault((name, size), []).append(one)
    progress(1.0, "timed")
    steps = {pair: statistics.fmean(one.step for one in found) for pair, found in timed.items()}
    computing = {pair: statistics.fmean(one.computing for one in found) for pair, found in timed.items()}
    return replace(summarize(steps, timed.values(), SECONDS), computing=computing)


def summarize(
    step_seconds: Mapping[tuple[str, int], float],
    timed: Iterable[Sequence[Timed]],
    seconds: float,
    batches: Mapping[str, MeasuredBatches] | None = None,
) -> Calibration:
    """Return the calibration of gangs that were ``timed`` for ``seconds`` each, grouped by what they did."""
    alike = [list(group) for group in timed]
    gangs = [one for group in alike for one in group]
    starts = [one.start for one in gangs]
    return Calibration(
        step_seconds,
        start=statistics.median(starts),
        save=statistics.median(one.stop for one in gangs),
        facts={"gangs_timed": len(gangs), "seconds_each": seconds},
        batches=batches or {},
        step_spread=spread([[one.step for one in group] for group in alike]),
        start_spread=spread([starts]),
    )


def spread(groups: Sequence[Sequence[float]]) -> float:
    """The standard deviation of numbers from the mean of their group, relative to it; 0 of single ones."""
    free = sum(len(group) - 1 for group in groups)
    off = [(one / statistics.fmean(group) - 1) ** 2 for group in groups for one in group]
    return math.sqrt(sum(off) / free) if free else 0.0


def models_together(model: str, size: int, pairs: Sequence[tuple[str, int]], slots: Slots) -> list[str]:
    """Return what gangs of ``size`` train at once: on one slot ``model`` and those after it, else copies."""
    singles = [name for name, slots_of in pairs if slots_of == 1]
    first = singles.index(model) if size == 1 else 0
    models = [*singles[first:], *singles[:first]] if size == 1 else [model]
    return [models[place % len(models)] for place in range(max(1, len(slots) // size))]


def _time_together(
    models: Sequence[str], size: int, slots: Slots, folder: Path, seed: int
) -> list[tuple[str, Timed]]:
    """A gang of each of ``models`` at once: each with its model."""
    trainings = [{"model": model, "seed": seed} for model in models]
    with working_gangs(everywhere(trainings, size), slots, folder) as (gangs, starts):
        time.sleep(SECONDS)
        return list(zip(models, stop_gangs(gangs, starts), strict=True))


def everywhere(trainings: Sequence[Mapping[str, Any]], size: int) -> list[Placed]:
    """One after another on ``size`` slots each."""
    return [
        Placed(training, range(place * size, (place + 1) * size)) for place, training in enumerate(trainings)
    ]


@contextmanager
def working_gangs(
    placed: Sequence[Placed], slots: Slots, folder: Path
) -> Iterator[tuple[list[GangProcess], list[float]]]:
    """Gangs that train without end, and the seconds until the first step of each."""
    gangs: list[GangProcess] = []
    load_libraries()
    began = time.monotonic()
    try:
        for place, (training, devices) in enumerate((one.training, one.devices) for one in placed):
            endless = {**training, "steps": ENDLESS, "checkpoint_every": None}
            cores, gpus = [slots.core(d) for d in devices], [slots.gpu(d) for d in devices]
            gangs.append(start(folder / str(place), 0, endless, cores, gpus))
        yield gangs, [_hear(gang, "begun")[0] - began for gang in gangs]
    finally:
        for gang in gangs:
            gang.end()


def stop_gangs(gangs: Sequence[GangProcess], starts: Sequence[float]) -> list[Timed]:
    """Tell all of them to stop, and return what each took."""
    asked = time.monotonic()
    for gang in gangs:
        gang.tell("stop")
    found = []
    for gang, took in zip(gangs, starts, strict=True):
        at, said = _hear(gang, "stopped")
        steps = max(1, said["steps"])
        found.append(Timed(took, said["seconds"] / steps, at - asked, said["computing"] / steps))
    return found


def _hear(gang: GangProcess, awaited: str) -> tuple[float, dict[str, Any]]:
    """Wait until a gang says ``awaited``: when, and what."""
    until = time.monotonic() + PATIENCE
    with selectors.DefaultSelector() as selector:
        selector.register(gang.output, selectors.EVENT_READ)
        while time.monotonic() < until:
            selector.select(until - time.monotonic())
            for said in gang.hear():
                if said["said"] == awaited:
                    return time.monotonic(), said
                if said["said"] == "gone":
                    raise LabError(f"a training process ended: {gang.last_words()}")
    raise LabError(f"a training process was not {awaited} within {PATIENCE:.0f} s")
