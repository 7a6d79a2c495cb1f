"""Plans of two processes, next to the simulator's figures for them on this host's layer times and link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.core.progress import Progress, part
from experiments.validate.cells import (
    EVERYTHING,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    left_out,
    run_cell,
)

#: A policy, its knobs, and what tells them apart from its other plans.
Plan = tuple[str, dict[str, Any], str]
PLANS: tuple[Plan, ...] = (
    ("data_parallel", {}, ""),
    ("zero", {"stage": 1}, "-1"),
    ("zero", {"stage": 3}, "-3"),
    ("gpipe", {"micro_batches": 4}, ""),
    ("one_f_one_b", {"micro_batches": 4}, ""),
    ("interleaved", {"micro_batches": 4}, ""),
    ("chimera", {"micro_batches": 4}, ""),
)
MODELS: dict[str, dict[str, Any]] = {
    "zoo:gpt2-tiny": {"batch": 64, "sequence": 64},
    "zoo:deep-mlp": {"batch": 256, "optimizer": "sgd"},
}


def models(device: str) -> Models:
    """The same on every device: processes share this host's."""
    return MODELS


def cells(device: str, progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    plans = [plan for plan in PLANS if chosen.has(plan[0])]
    grid = [(model, options, plan) for model, options in chosen.of(models(device)).items() for plan in plans]
    for done, (model, options, plan) in enumerate(grid):
        if chosen.out_of_time:
            yield left_out(model, "parallel", plan[0] + plan[2])
            continue
        progress(done / len(grid), f"{model} {plan[0]}{plan[2]}")
        yield _cell(model, options, plan, part(progress, done / len(grid), (done + 1) / len(grid)))


def _cell(model: str, options: Mapping[str, Any], plan: Plan, progress: Progress) -> ValidationCell:
    policy, knobs, variant = plan
    spec = cell_spec(model, options, "parallel", policy, knobs=knobs)
    return run_cell(spec, model, policy + variant, progress)
