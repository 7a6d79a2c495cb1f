"""``python -m experiments.validate --device cpu|cuda --out FILE [--family parallel]``: predicted against measured.

Each cell is a model and a policy. The model's step is profiled on this host once, the plan is simulated on those times
(predicted) and carried out by torch (measured). The evidence file says how far apart they are; the Hosts page reads it.
Needs nothing but torch, numpy and scipy.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.commands.output import table, write_json
from experiments.core import registry
from experiments.core.completion import complete
from experiments.core.errors import Infeasible, LabError
from experiments.core.progress import Bar, Progress, part, silent
from experiments.core.spec import RunSpec, load_spec, load_workload
from experiments.core.units import human
from experiments.memory import experiment
from experiments.memory.interface import MemoryPolicy
from experiments.run import host, revision, run, versions
from experiments.sources import load
from experiments.workloads.step import Step

FORMAT = "mlsys-validation-1"

#: Sizes that fit the ten minutes on two CPU cores, and sizes that mean something on a GPU.
MODELS: dict[str, dict[str, dict[str, Any]]] = {
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
#: Memory policies that move things whatever the capacity, and those that move only what does not fit.
EAGER_MEMORY = ("baseline", "swap_all", "checkpoint", "vdnn-all")
PLANNED_MEMORY = ("capuchin", "superneurons", "flashneuron", "zero_offload")
COMPILATION = ("eager", "torch_compile")
#: The latter plan for the persistent tensors and this share of the most that lives beside them: the first that they
#: can do with. The file says in every cell which capacity it was.
SHARES = (0.6, 0.75, 0.9, 1.0)
#: The share of the ideal speed is measured step by step in turn with unplanned ones: a busy host slows both.
COMPARED = (
    *("peak_memory", "peak_memory_per_device", "step_time", "ideal_share", "latency"),
    "communication_bytes",
)
UNITS = {
    "peak_memory": "bytes",
    "peak_memory_per_device": "bytes",
    "communication_bytes": "bytes",
    "ideal_share": "fraction",
}
FAMILIES = ("memory", "compilation", "parallel")
#: Plans of two processes: a policy, its knobs, and what tells them apart from its other plans.
PLANS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("data_parallel", {}, ""),
    ("zero", {"stage": 1}, "-1"),
    ("zero", {"stage": 3}, "-3"),
    ("gpipe", {"micro_batches": 4}, ""),
    ("one_f_one_b", {"micro_batches": 4}, ""),
    ("interleaved", {"micro_batches": 4}, ""),
    ("chimera", {"micro_batches": 4}, ""),
)
PARALLEL_MODELS: dict[str, dict[str, Any]] = {
    "zoo:gpt2-tiny": {"batch": 64, "sequence": 64},
    "zoo:deep-mlp": {"batch": 256, "optimizer": "sgd"},
}


@dataclass(frozen=True)
class Cell:
    """One model under one policy. ``figures`` maps a metric to predicted, measured and relative error; ``capacity`` is
    what a memory policy planned for.
    """

    model: str
    family: str
    policy: str
    status: str
    reason: str | None
    figures: dict[str, dict[str, float | None]]
    metrics: dict[str, float]
    seconds: float
    capacity: int | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def cell_spec(
    model: str, options: dict[str, Any], family: str, policy: str, capacity: int | None = None
) -> RunSpec:
    workload = {"source": model, "options": options}
    hardware: Any = "local"
    if capacity is not None:
        hardware = {"device": "local", "overrides": {"memory_bytes": capacity}}
    row = {"family": family, "policy": policy, "workload": workload, "hardware": hardware, "mode": "measured"}
    return load_spec(row)


def compared(
    metrics: Mapping[str, float], predicted: Mapping[str, float]
) -> dict[str, dict[str, float | None]]:
    """Predicted, measured and relative error of every metric that was measured; ``None`` where nothing predicts it."""
    found: dict[str, dict[str, float | None]] = {}
    for name in COMPARED:
        if name not in metrics:
            continue
        measured, guess = metrics[name], predicted.get(name)
        error = (guess - measured) / measured if guess is not None and measured else None
        found[name] = {"predicted": guess, "measured": measured, "error": error}
    return found


def memory_cells(model: str, options: dict[str, Any], progress: Progress) -> Iterator[Cell]:
    """Every memory policy on one model, which is captured and profiled once."""
    policies = (*EAGER_MEMORY, *PLANNED_MEMORY)
    share = 1 / (len(policies) + 1)
    live = registry.load_module("memory", "live")
    source = load(load_workload({"source": model, "options": options})).value
    progress(0.0, f"{model}: profiling")
    session = live.Session(source, part(progress, 0.0, share))
    for place, policy in enumerate(policies, 1):
        progress(place * share, f"{model} {policy}")
        below = part(progress, place * share, (place + 1) * share)
        yield memory_cell(session, model, options, policy, below)


def memory_cell(session: Any, model: str, options: dict[str, Any], policy: str, progress: Progress) -> Cell:
    """One policy in the model's session; what cannot be carried out is a cell too, with its reason."""
    clock, status, reason = time.perf_counter(), "failed", None
    for capacity in capacities(session.step) if policy in PLANNED_MEMORY else (None,):
        try:
            spec, made = complete(cell_spec(model, options, "memory", policy, capacity))
            assert isinstance(made, MemoryPolicy)
            result = experiment.measured_in(session, spec, made, progress)
        except Infeasible as error:
            status, reason = "infeasible", str(error)
            continue
        except LabError as error:
            status, reason = "failed", str(error)
            break
        figures = compared(result.metrics, result.notes.get("predicted", {}))
        facts = (dict(result.metrics), time.perf_counter() - clock, result.notes.get("capacity"))
        return Cell(model, "memory", policy, result.status, result.reason, figures, *facts)
    return Cell(model, "memory", policy, status, reason, {}, {}, time.perf_counter() - clock)


def capacities(step: Step) -> list[int]:
    """What to plan for, the tightest first."""
    beside = step.live_peak - step.persistent_bytes
    least = int(step.op_need.max(initial=0))
    return [max(least, step.persistent_bytes + int(share * beside)) for share in SHARES]


def compilation_cell(model: str, options: dict[str, Any], policy: str, progress: Progress) -> Cell:
    """Carry out one cell; an error is a cell too, with its reason."""
    clock = time.perf_counter()
    try:
        outcome = run(cell_spec(model, options, "compilation", policy), progress)
    except LabError as error:
        return Cell(model, "compilation", policy, "failed", str(error), {}, {}, time.perf_counter() - clock)
    predicted = {"latency": eager_seconds(model, options)} if policy == "eager" else {}
    metrics = {name: row["value"] for name, row in outcome.metrics.items()}
    took = time.perf_counter() - clock
    figures = compared(metrics, predicted)
    return Cell(model, "compilation", policy, outcome.status, outcome.reason, figures, metrics, took)


def parallel_cell(model: str, options: dict[str, Any], number: int, progress: Progress) -> Cell:
    """One plan of two processes, beside the simulator's figures for it on this host's own layer times and link."""
    policy, knobs, variant = PLANS[number]
    clock, name = time.perf_counter(), policy + variant
    try:
        spec = replace(cell_spec(model, options, "parallel", policy), knobs=knobs)
        outcome = run(spec, progress)
    except LabError as error:
        return Cell(model, "parallel", name, "failed", str(error), {}, {}, time.perf_counter() - clock)
    metrics = {metric: row["value"] for metric, row in outcome.metrics.items()}
    figures = compared(metrics, outcome.provenance.get("predicted", {}))
    took = time.perf_counter() - clock
    return Cell(model, "parallel", name, outcome.status, outcome.reason, figures, metrics, took)


def eager_seconds(model: str, options: dict[str, Any]) -> float:
    """The forward pass in eager mode as the sum of its op times on this host."""
    timing = importlib.import_module("experiments.profiling.timing")
    source = load(load_workload({"source": model, "options": {**options, "training": False}})).value
    step: Step = timing.profiled(source, timing.default_device(), silent)
    return step.seconds


def errors(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Median and largest absolute relative error of each metric, with how many cells had one."""
    summary = {}
    for name in COMPARED:
        found = [abs(e) for cell in cells if (e := cell.figures.get(name, {}).get("error")) is not None]
        if found:
            summary[name] = {"median": statistics.median(found), "largest": max(found), "cells": len(found)}
    return summary


def single_device_cells(device: str, families: Sequence[str], progress: Progress) -> Iterator[Cell]:
    """Memory and compilation, as far as they are among ``families``."""
    models = MODELS[device] if {"memory", "compilation"} & set(families) else {}
    for done, (model, options) in enumerate(models.items()):
        here = part(progress, done / len(models), (done + 1) / len(models))
        if "memory" in families:
            yield from memory_cells(model, options, part(here, 0.0, 0.75))
        for place, policy in enumerate(COMPILATION if "compilation" in families else ()):
            low = 0.75 + 0.25 * place / len(COMPILATION)
            here(low, f"{model} {policy}")
            below = part(here, low, low + 0.25 / len(COMPILATION))
            yield compilation_cell(model, options, policy, below)


def parallel_cells(progress: Progress) -> Iterator[Cell]:
    count = len(PARALLEL_MODELS) * len(PLANS)
    for row, (model, options) in enumerate(PARALLEL_MODELS.items()):
        for number, (policy, _, variant) in enumerate(PLANS):
            low = (row * len(PLANS) + number) / count
            progress(low, f"{model} {policy}{variant}")
            yield parallel_cell(model, options, number, part(progress, low, low + 1 / count))


def validate(
    device: str, progress: Progress, families: Sequence[str] = ("memory", "compilation")
) -> dict[str, Any]:
    """The evidence: every cell of the grid of ``families`` on this host's ``device``."""
    started, clock = datetime.now(UTC), time.perf_counter()
    share = 0.7 if "parallel" in families else 1.0
    cells = list(single_device_cells(device, families, part(progress, 0.0, share)))
    if "parallel" in families:
        cells += parallel_cells(part(progress, share, 1.0))
    progress(1.0, "done")
    facts = host()
    return {
        "format": FORMAT,
        "kind": device,
        "device": facts.get("device") or f"cpu ({facts['cores']} cores)",
        "host": facts,
        "versions": versions(),
        "revision": revision(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - clock, 3),
        "options": MODELS[device] | (PARALLEL_MODELS if "parallel" in families else {}),
        "cells": [cell.to_json() for cell in cells],
        "errors": errors(cells),
    }


def rows(evidence: dict[str, Any]) -> list[tuple[str, ...]]:
    out = []
    for cell in evidence["cells"]:
        for name, figure in cell["figures"].items() or [("-", {})]:
            unit = UNITS.get(name, "s")
            shown = [
                human(figure[side], unit) if figure.get(side) is not None else "-"
                for side in ("predicted", "measured")
            ]
            error = f"{figure['error']:+.1%}" if figure.get("error") is not None else "-"
            out.append((cell["model"], cell["policy"], cell["status"], name, *shown, error))
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.validate", description=__doc__)
    parser.add_argument("--device", choices=tuple(MODELS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="evidence file")
    parser.add_argument(
        "--family", nargs="+", choices=FAMILIES, default=["memory", "compilation"], help="of these families"
    )
    chosen = parser.parse_args(arguments)
    if chosen.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    evidence = validate(chosen.device, Bar() if sys.stderr.isatty() else silent, chosen.family)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(evidence, chosen.out)
    print(table(("model", "policy", "status", "metric", "predicted", "measured", "error"), rows(evidence)))
    for name, summary in evidence["errors"].items():
        print(
            f"{name}: median error {summary['median']:.1%}, largest {summary['largest']:.1%} over {summary['cells']} cells"
        )
    print(f"{evidence['device']}, {evidence['seconds']:.0f} s, written to {chosen.out}")
    return 1 if any(cell["status"] == "failed" for cell in evidence["cells"]) else 0


if __name__ == "__main__":
    sys.exit(main())
