"""What steps of other batches take on this host, and the noise of gradients, measured before the run.

For schedulers that choose batches: gangs train as jobs do, and change their batch while they do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.cluster.live.calibration import (
    Calibration,
    MeasuredBatches,
    Timed,
    everywhere,
    models_together,
    stop_gangs,
    summarize,
    working_gangs,
)
from experiments.cluster.live.gang_process import GangProcess
from experiments.cluster.live.slots import Slots
from experiments.cluster.live.stays import FEWEST_STEPS
from experiments.cluster.live.training_jobs import BATCHES, LEAST_EACH, MOST, MOST_EACH
from experiments.core.errors import LabError
from experiments.core.progress import Progress

#: Seconds at each batch, between two looks, and the most until enough steps are seen.
SECONDS, LOOK, PATIENCE = 1.0, 0.05, 60.0
#: Steps of the initial batch between two estimates of the noise that are kept.
APART = 20.0

#: Samples at once, seconds of a step and of its exchange; work done, squared norm and variance.
StepRow = tuple[int, float, float]
NoiseRow = tuple[float, float, float]


@dataclass(frozen=True)
class Sweep:
    """What one gang's steps took at several batches, the noise before the last of them, and its own times."""

    steps: list[StepRow]
    noise: tuple[NoiseRow, ...]
    timed: Timed


def calibrate_batches(
    wanted: Iterable[tuple[str, int]], slots: Slots, folder: Path, seed: int, progress: Progress
) -> Calibration:
    """Time each model of ``wanted`` on each number of slots at several batches, with all slots at work."""
    pairs = sorted(set(wanted))
    sweeps: dict[tuple[str, int], list[Sweep]] = {}
    for done, (model, size) in enumerate(pairs):
        progress(done / len(pairs), f"timing batches of {model} on {size} {'slot' if size == 1 else 'slots'}")
        models = models_together(model, size, pairs, slots)
        for name, sweep in _sweep(models, size, slots, folder / f"{model}-{size}", seed):
            sweeps.setdefault((name, size), []).append(sweep)
    progress(1.0, "timed")
    steps: dict[str, dict[int, tuple[StepRow, ...]]] = {}
    for (model, size), found in sweeps.items():
        steps.setdefault(model, {})[size] = average_steps(found)
    noise = {model: sweeps[model, min(steps[model])][0].noise for model in steps}
    batches = {model: MeasuredBatches(steps[model], noise[model]) for model in steps}
    each = {(model, size): batches[model].step_seconds(size, BATCHES[model] / size) for model, size in pairs}
    made = summarize(each, [[one.timed for one in found] for found in sweeps.values()], SECONDS, batches)
    return replace(made, facts={**made.facts, "noise_later": "as estimated last"})


def samples_at_once(model: str, size: int) -> list[int]:
    """The samples that each of ``size`` slots takes at once, the initial batch of one slot first."""
    initial = BATCHES[model]
    most = min(MOST_EACH * initial, MOST * initial // size)
    return list(dict.fromkeys((min(initial, most), most, max(1, round(LEAST_EACH * initial)))))


def average_steps(sweeps: Sequence[Sweep]) -> tuple[StepRow, ...]:
    """The mean seconds of a step and of its exchange at each batch, over sweeps of one model."""
    by_batch = zip(*(sorted(sweep.steps) for sweep in sweeps), strict=True)
    return tuple(
        (
            rows[0][0],
            statistics.fmean(step for _, step, _ in rows),
            statistics.fmean(sync for *_, sync in rows),
        )
        for rows in by_batch
    )


def _sweep(
    models: Sequence[str], size: int, slots: Slots, folder: Path, seed: int
) -> list[tuple[str, Sweep]]:
    """Let a gang of each of ``models`` train at one batch after another, all at once."""
    points = [samples_at_once(model, size) for model in models]
    trainings = [
        {"model": model, "seed": seed, "division": (at[0], 0)}
        for model, at in zip(models, points, strict=True)
    ]
    rows: list[list[StepRow]] = [[] for _ in models]
    noise: list[list[NoiseRow]] = [[] for _ in models]
    with working_gangs(everywhere(trainings, size), slots, folder) as (gangs, starts):
        for number, at in enumerate(zip(*points, strict=True)):
            for place, said in enumerate(_train_at(at, gangs)):
                last = said[-1]
                rows[place].append((at[place], last["step_seconds"], last["sync_seconds"]))
                if number < len(points[place]) - 1:
                    noise[place] += [(one["step"], one["square"], one["variance"]) for one in said]
        timed = stop_gangs(gangs, starts)
    sweeps = [Sweep(*one) for one in zip(rows, map(_thin, noise), timed, strict=True)]
    return list(zip(models, sweeps, strict=True))


def _train_at(each: Sequence[int], gangs: Sequence[GangProcess]) -> list[list[Mapping[str, Any]]]:
    """Let each gang train with so many samples at once: what it reported once it had timed enough steps."""
    for gang, samples in zip(gangs, each, strict=True):
        gang.tell(f"batch {samples} 0")
    began, reports = time.monotonic(), [list[Mapping[str, Any]]() for _ in gangs]
    while time.monotonic() - began < SECONDS or not all(reports):
        time.sleep(LOOK)
        for gang, samples, found in zip(gangs, each, reports, strict=True):
            for said in gang.hear():
                if said["said"] == "gone" or time.monotonic() - began > PATIENCE:
                    raise LabError(f"a training process made no steps: {gang.last_words()}")
                if said.get("each") == samples and said.get("timed", 0) >= FEWEST_STEPS:
                    found.append(said)
    return reports


def _thin(noise: Sequence[NoiseRow]) -> tuple[NoiseRow, ...]:
    kept: list[NoiseRow] = []
    for row in noise:
        if not kept or row[0] >= kept[-1][0] + APART:
            kept.append(row)
    return tuple(kept)
