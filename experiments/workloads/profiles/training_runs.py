"""Measured training of applications: how long steps take on which placement, and what they are worth.

Steps are in seconds for a batch on each device; worth is told by epoch, for each batch size validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from experiments.workloads.step import Floats


@dataclass(frozen=True)
class StepTimes:
    """Measured steps of one placement, by rising batch on each device.

    ``batch``  samples on each device.
    ``step``   seconds of a whole step.
    ``sync``   seconds of it that gradients are exchanged.
    """

    batch: Floats
    step: Floats
    sync: Floats


@dataclass(frozen=True)
class Validation:
    """One training at a fixed batch size, an entry for each epoch.

    ``progress``  statistical units done at its end, strictly rising.
    ``steps``     optimizer steps done at its end.
    ``metric``    of the validation then.
    ``square``    squared norm of the gradient.
    ``variance``  variance of the gradient.
    """

    progress: Floats
    steps: Floats
    metric: Floats
    square: Floats
    variance: Floats


@dataclass(frozen=True)
class TrainingRun:
    """What was measured of one application.

    ``placed``     step times by GPUs on each node, as (2, 1).
    ``scattered``  step times by (nodes, GPUs) of larger jobs.
    ``validated``  trainings by batch size.
    """

    placed: Mapping[tuple[int, ...], StepTimes]
    scattered: Mapping[tuple[int, int], StepTimes]
    validated: Mapping[int, Validation]


@dataclass(frozen=True)
class TrainingRuns:
    """The measurements of each application of a side file."""

    speeds: ClassVar[str] = "goodput"

    name: str
    applications: Mapping[str, TrainingRun]
