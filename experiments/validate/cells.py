"""One cell of the grid: a model under a policy, what was predicted of it and what was measured."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import LabError
from experiments.core.progress import Progress
from experiments.core.spec import RunSpec, load_spec
from experiments.run import run

#: A metric of a cell: predicted, measured and relative error, ``None`` where nothing predicts it.
Figure = dict[str, float | None]
#: A model's name and the options of its workload.
Models = Mapping[str, Mapping[str, Any]]

#: The share of the ideal speed is measured step by step in turn with unplanned ones: a busy host slows both.
COMPARED = (
    *("peak_memory", "peak_memory_per_device", "step_time", "ideal_share", "latency", "roofline_latency"),
    *("speedup", "communication_bytes", "avg_jct", "makespan"),
    *("ttft_mean", "tpot_mean", "latency_mean", "peak_kv_tokens"),
)
#: Sizes that fit the ten minutes on two CPU cores, and sizes that mean something on a GPU.
SINGLE_DEVICE: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        "zoo:gpt2": {"batch": 1, "sequence": 128, "optimizer": "sgd"},
        "zoo:bert-base": {"batch": 1, "sequence": 128, "optimizer": "sgd"},
        "zoo:resnet50": {"batch": 4, "image": 96},
        "zoo:vgg16": {"batch": 2, "image": 64, "optimizer": "sgd"},
    },
    "cuda": {
        "zoo:gpt2": {"batch": 8, "sequence": 1024},
        "zoo:bert-base": {"batch": 32, "sequence": 512},
        "zoo:resnet50": {"batch": 64, "image": 224},
        "zoo:vgg16": {"batch": 64, "image": 224},
    },
}


@dataclass(frozen=True)
class Chosen:
    """Which cells of the grids are carried out: of these models and policies, begun before this time.

    ``None``: all. ``until`` is a time of ``time.perf_counter``. A live serving run happens ``turns`` times.
    """

    models: frozenset[str] | None = None
    policies: frozenset[str] | None = None
    until: float = math.inf
    turns: int = 5

    def of(self, grid: Models) -> Models:
        """The models of a grid that were chosen."""
        return {name: given for name, given in grid.items() if self.models is None or name in self.models}

    def has(self, policy: str) -> bool:
        return self.policies is None or policy in self.policies

    @property
    def out_of_time(self) -> bool:
        return time.perf_counter() > self.until


EVERYTHING = Chosen()
OUT_OF_TIME = "the seconds given to this validation were used up"

#: What code that somebody else wrote may end in, besides the errors that are meant to be read.
CRASHES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError),
    *(RuntimeError, TypeError, ValueError),
)

#: The state of a cell that this host cannot carry out, and how its reason says so.
UNSUPPORTED = "unsupported here"


@dataclass(frozen=True)
class ValidationCell:
    """One model under one policy.

    ``figures`` maps a metric to predicted, measured and relative error; ``capacity`` is what a memory policy
    planned for, ``facts`` what else is known of it.
    """

    model: str
    family: str
    policy: str
    status: str
    reason: str | None
    figures: dict[str, Figure]
    metrics: dict[str, float]
    seconds: float
    capacity: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def left_out(model: str, family: str, policy: str, why: str = OUT_OF_TIME) -> ValidationCell:
    """A cell that was not begun."""
    return ValidationCell(model, family, policy, "left out", why, {}, {}, 0.0)


def standing(status: str, reason: str | None) -> str:
    """A cell's state: what this host cannot do is no failure."""
    return UNSUPPORTED if status == "infeasible" and UNSUPPORTED in (reason or "") else status


def line_of(error: BaseException) -> str:
    """An unforeseen error in one line, as a cell's reason."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"


def cell_spec(
    model: str,
    options: Mapping[str, Any],
    family: str,
    policy: str,
    capacity: int | None = None,
    knobs: Mapping[str, Any] | None = None,
) -> RunSpec:
    workload = {"source": model, "options": dict(options)}
    hardware: Any = "local"
    if capacity is not None:
        hardware = {"device": "local", "overrides": {"memory_bytes": capacity}}
    row = {"family": family, "policy": policy, "workload": workload, "hardware": hardware, "mode": "measured"}
    return load_spec({**row, "knobs": dict(knobs or {})})


def run_cell(spec: RunSpec, model: str, policy: str, progress: Progress) -> ValidationCell:
    """A cell that is a whole run; ``policy`` tells it apart from its other cells."""
    clock = time.perf_counter()
    try:
        outcome = run(spec, progress)
    except LabError as error:
        took = time.perf_counter() - clock
        return ValidationCell(model, spec.family, policy, "failed", str(error), {}, {}, took)
    metrics = {metric: row["value"] for metric, row in outcome.metrics.items()}
    figures = compare(metrics, outcome.provenance.get("predicted", {}))
    status, took = standing(outcome.status, outcome.reason), time.perf_counter() - clock
    return ValidationCell(model, spec.family, policy, status, outcome.reason, figures, metrics, took)


def compare(metrics: Mapping[str, float], predicted: Mapping[str, float]) -> dict[str, Figure]:
    """Predicted, measured and relative error of every metric that was measured.

    ``None`` where nothing predicts it.
    """
    found: dict[str, Figure] = {}
    for name in COMPARED:
        if name not in metrics:
            continue
        measured, guess = metrics[name], predicted.get(name)
        error = (guess - measured) / measured if guess is not None and measured else None
        found[name] = {"predicted": guess, "measured": measured, "error": error}
    return found


def errors(cells: Sequence[ValidationCell]) -> dict[str, dict[str, float]]:
    """Median and largest absolute relative error of each metric, with how many cells had one."""
    summary = {}
    for name in COMPARED:
        found = [abs(e) for cell in cells if (e := cell.figures.get(name, {}).get("error")) is not None]
        if found:
            summary[name] = {"median": statistics.median(found), "largest": max(found), "cells": len(found)}
    return summary
