"""Compilation policies: the forward pass as each compiles it, beside the sum of its op times on this host."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.core.errors import LabError
from experiments.core.progress import Progress, part, silent
from experiments.core.spec import load_workload
from experiments.run import run
from experiments.sources import load
from experiments.validate import numerics
from experiments.validate.cells import SINGLE_DEVICE, Cell, Models, cell_spec, compared
from experiments.workloads.step import Step

POLICIES = ("eager", "torch_compile")


def models(device: str) -> Models:
    return SINGLE_DEVICE[device]


def cells(device: str, progress: Progress) -> Iterator[Cell]:
    grid = [(model, options, policy) for model, options in models(device).items() for policy in POLICIES]
    for done, (model, options, policy) in enumerate(grid):
        progress(done / len(grid) / 2, f"{model} {policy}")
        yield _cell(model, options, policy, part(progress, done / len(grid) / 2, (done + 1) / len(grid) / 2))
    yield from numerics.cells(device, part(progress, 0.5, 1.0))


def _cell(model: str, options: Mapping[str, Any], policy: str, progress: Progress) -> Cell:
    """Carry out one cell; an error is a cell too, with its reason."""
    clock = time.perf_counter()
    try:
        outcome = run(cell_spec(model, options, "compilation", policy), progress)
    except LabError as error:
        return Cell(model, "compilation", policy, "failed", str(error), {}, {}, time.perf_counter() - clock)
    predicted = {"latency": _eager_seconds(model, options)} if policy == "eager" else {}
    metrics = {name: row["value"] for name, row in outcome.metrics.items()}
    took = time.perf_counter() - clock
    figures = compared(metrics, predicted)
    return Cell(model, "compilation", policy, outcome.status, outcome.reason, figures, metrics, took)


def _eager_seconds(model: str, options: Mapping[str, Any]) -> float:
    """The forward pass in eager mode as the sum of its op times on this host."""
    timing = importlib.import_module("experiments.profiling.timing")
    source = load(load_workload({"source": model, "options": {**options, "training": False}})).value
    step: Step = timing.profiled(source, timing.default_device(), silent)
    return step.seconds
