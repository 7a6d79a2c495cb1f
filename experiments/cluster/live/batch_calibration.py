"""What steps of other batches take on this host, and the noise of gradients, measured before the run.

For schedulers that choose batches: gangs train as jobs do, and change their batch while they do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.cluster.live.calibration import (
    Calibration,
    MeasuredBatches,
    Timed,
    everywhere,
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


def calibrate_batches(
    wanted: Iterable[tuple[str, int]], slots: Slots, folder: Path, seed: int, progress: Progress
) -> Calibration:
    """Time each model of ``wanted`` on each number of slots at several batches, with all slots at work."""
    pairs = sorted(set(wanted))
    steps: dict[str, dict[int, tuple[StepRow, ...]]] = {}
    noise: dict[str, tuple[NoiseRow, ...]] = {}
    timed: list[list[Timed]] = []
    for done, (model, size) in enumerate(pairs):
        progress(done / len(pairs), f"timing batches of {model} on {size} {'slot' if size == 1 else 'slots'}")
        rows, noises, found = _sweep(model, size, slots, folder / f"{model}-{size}", seed)
        steps.setdefault(model, {})[size] = tuple(sorted(rows))
        noise[model] = noise.get(model) or noises
        timed.append(found)
    progress(1.0, "timed")
    batches = {model: MeasuredBatches(steps[model], noise[model]) for model in steps}
    each = {(model, size): batches[model].step_seconds(size, BATCHES[model] / size) for model, size in pairs}
    made = summarize(each, timed, SECONDS, batches)
    return replace(made, facts={**made.facts, "noise_later": "as estimated last"})


def samples_at_once(model: str, size: int) -> list[int]:
    """The samples that each of ``size`` slots takes at once, the initial batch of one slot first."""
    initial = BATCHES[model]
    most = min(MOST_EACH * initial, MOST * initial // size)
    return list(dict.fromkeys((min(initial, most), most, max(1, round(LEAST_EACH * initial)))))


def _sweep(
    model: str, size: int, slots: Slots, folder: Path, seed: int
) -> tuple[list[StepRow], tuple[NoiseRow, ...], list[Timed]]:
    """Steps at each batch, the noise before the last of them, and what starts and stops took."""
    points = samples_at_once(model, size)
    training = {"model": model, "seed": seed, "division": (points[0], 0)}
    rows: list[StepRow] = []
    noise: list[NoiseRow] = []
    copies = [training] * max(1, len(slots) // size)
    with working_gangs(everywhere(copies, size), slots, folder) as (gangs, starts):
        for each in points:
            last, told = _train_at(each, gangs)
            step, sync = (
                statistics.fmean(one[name] for one in last) for name in ("step_seconds", "sync_seconds")
            )
            rows.append((each, step, sync))
            if each != points[-1]:
                noise += told
        return rows, _thin(noise), stop_gangs(gangs, starts)


def _train_at(each: int, gangs: Sequence[GangProcess]) -> tuple[list[Mapping[str, Any]], list[NoiseRow]]:
    """Let all gangs train with ``each`` samples at once: the last reports, and the first gang's noise."""
    for gang in gangs:
        gang.tell(f"batch {each} 0")
    began, last, noise = time.monotonic(), dict[int, Mapping[str, Any]](), list[NoiseRow]()
    while time.monotonic() - began < SECONDS or len(last) < len(gangs):
        time.sleep(LOOK)
        for place, gang in enumerate(gangs):
            for said in gang.hear():
                if said["said"] == "gone" or time.monotonic() - began > PATIENCE:
                    raise LabError(f"a training process made no steps: {gang.last_words()}")
                if said.get("each") == each and said.get("timed", 0) >= FEWEST_STEPS:
                    last[place] = said
                    if not place:
                        noise.append((said["step"], said["square"], said["variance"]))
    return list(last.values()), noise


def _thin(noise: Sequence[NoiseRow]) -> tuple[NoiseRow, ...]:
    kept: list[NoiseRow] = []
    for row in noise:
        if not kept or row[0] >= kept[-1][0] + APART:
            kept.append(row)
    return tuple(kept)
