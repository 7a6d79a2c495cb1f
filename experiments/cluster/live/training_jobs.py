"""Which of the small models each job of a trace trains, and for how many steps."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from experiments.workloads.jobs import JobTrace

#: The models that jobs train (``models.MAKERS``), and the samples of a step that each is submitted with.
BATCHES: Mapping[str, int] = {"mlp": 64, "cnn": 32, "gpt": 16}
MODELS = tuple(BATCHES)
#: The most samples of a step, the fewest and the most that a slot takes at once, in batches as submitted.
MOST, LEAST_EACH, MOST_EACH = 8, 1 / 8, 4


@dataclass(frozen=True)
class TrainingJobs:
    """``trace`` with the seconds that its jobs take here alone.

    ``models`` that they train, their ``steps``, the part of a slot that each ``uses``, and what was
    ``assumed`` where the trace did not say.
    """

    trace: JobTrace
    models: tuple[str, ...]
    steps: tuple[int, ...]
    uses: tuple[float, ...]
    assumed: tuple[str, ...]


def models_of(trace: JobTrace) -> tuple[str, ...]:
    """The model that each job trains: the one it names, or one that its name always gives."""
    return tuple(
        name if name in MODELS else MODELS[zlib.crc32(name.encode()) % len(MODELS)] for name in trace.model
    )


def training_jobs(
    trace: JobTrace, step_seconds: Callable[[str, int, float], float], *, paced: bool = False
) -> TrainingJobs:
    """Return the jobs with steps: as told, or as many as fill their service.

    ``step_seconds`` is what a step takes alone, by model, GPUs, and the part of the time for which it
    computes at most. ``paced`` jobs compute for no more of it than the trace says.
    """
    models = models_of(trace)
    told = trace.traits.get("iterations", np.full(len(trace), math.nan))
    uses = _used_parts(trace) if paced else (1.0,) * len(trace)
    steps, service = [], np.empty(len(trace))
    for job, model in enumerate(models):
        each = step_seconds(model, int(trace.gpus[job]), uses[job])
        count = max(1, round(trace.service[job] / each if math.isnan(told[job]) else float(told[job])))
        steps.append(count)
        service[job] = count * each
    made = replace(trace, service=service, profiles=None)
    assumed = _assumptions(trace, models, bool(np.isnan(told).any()))
    return TrainingJobs(made, models, tuple(steps), uses, tuple(assumed))


def _used_parts(trace: JobTrace) -> tuple[float, ...]:
    """The part of a whole slot that each job computes when it runs alone."""
    told = (trace.traits.get(name, 1.0) for name in ("gpu_share", "utilization"))
    part = np.ones(len(trace))
    for column in told:
        part = part * np.asarray(column, np.float64)
    return tuple(part.tolist())


def _assumptions(trace: JobTrace, models: tuple[str, ...], filled: bool) -> list[str]:
    found: Mapping[str, str] = {
        name: model for name, model in zip(trace.model, models, strict=True) if name != model
    }
    said = [f"jobs of {name or 'no named model'} train {model}" for name, model in sorted(found.items())]
    if filled:
        said.append("a job takes as many steps as fill its service time when it runs alone")
    return said
