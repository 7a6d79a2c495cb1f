"""``python -m experiments.validate --device cpu|cuda --out FILE``: predicted against measured, cell by cell.

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
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.commands.output import table, write_json
from experiments.core.errors import LabError
from experiments.core.progress import Bar, Progress, part, silent
from experiments.core.spec import Outcome, load_spec, load_workload
from experiments.core.units import human
from experiments.run import host, revision, run, versions
from experiments.sources import load
from experiments.workloads.step import Step

FORMAT = "mlsys-validation-1"

#: Sizes that fit the ten minutes on two CPU cores, and sizes that mean something on a GPU.
MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        "zoo:gpt2": {"batch": 1, "sequence": 256, "optimizer": "sgd"},
        "zoo:resnet50": {"batch": 4, "image": 96},
        "zoo:deep-mlp": {"batch": 512},
    },
    "cuda": {
        "zoo:gpt2": {"batch": 8, "sequence": 1024},
        "zoo:resnet50": {"batch": 64, "image": 224},
        "zoo:deep-mlp": {"batch": 8192},
    },
}
POLICIES = (
    ("memory", "baseline"),
    ("memory", "swap_all"),
    ("memory", "checkpoint"),
    ("memory", "vdnn-all"),
    ("compilation", "eager"),
    ("compilation", "torch_compile"),
)
COMPARED = ("peak_memory", "step_time", "latency")


@dataclass(frozen=True)
class Cell:
    """One model under one policy. ``figures`` maps a metric to predicted, measured and relative error."""

    model: str
    family: str
    policy: str
    status: str
    reason: str | None
    figures: dict[str, dict[str, float | None]]
    metrics: dict[str, float]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def cell_spec(model: str, options: dict[str, Any], family: str, policy: str) -> dict[str, Any]:
    workload = {"source": model, "options": options}
    return {"family": family, "policy": policy, "workload": workload, "hardware": "local", "mode": "measured"}


def compared(outcome: Outcome) -> dict[str, dict[str, float | None]]:
    """Predicted, measured and relative error of every metric that was measured; ``None`` where nothing predicts it."""
    predicted = outcome.provenance.get("predicted", {})
    found: dict[str, dict[str, float | None]] = {}
    for name in COMPARED:
        if name not in outcome.metrics:
            continue
        measured, guess = outcome.metrics[name]["value"], predicted.get(name)
        error = (guess - measured) / measured if guess is not None and measured else None
        found[name] = {"predicted": guess, "measured": measured, "error": error}
    return found


def measure(model: str, options: dict[str, Any], family: str, policy: str, progress: Progress) -> Cell:
    """Carry out one cell; an error is a cell too, with its reason."""
    clock = time.perf_counter()
    try:
        outcome = run(load_spec(cell_spec(model, options, family, policy)), progress)
    except LabError as error:
        return Cell(model, family, policy, "failed", str(error), {}, {}, time.perf_counter() - clock)
    if policy == "eager":
        outcome.provenance["predicted"] = {"latency": eager_seconds(model, options)}
    metrics = {name: row["value"] for name, row in outcome.metrics.items()}
    took = time.perf_counter() - clock
    return Cell(model, family, policy, outcome.status, outcome.reason, compared(outcome), metrics, took)


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


def validate(device: str, progress: Progress) -> dict[str, Any]:
    """The evidence: every cell of the grid on this host's ``device``."""
    started, clock = datetime.now(UTC), time.perf_counter()
    grid = [(model, options, *policy) for model, options in MODELS[device].items() for policy in POLICIES]
    cells = []
    for done, (model, options, family, policy) in enumerate(grid):
        progress(done / len(grid), f"{model} {policy}")
        cells.append(
            measure(model, options, family, policy, part(progress, done / len(grid), (done + 1) / len(grid)))
        )
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
        "options": MODELS[device],
        "cells": [cell.to_json() for cell in cells],
        "errors": errors(cells),
    }


def rows(evidence: dict[str, Any]) -> list[tuple[str, ...]]:
    out = []
    for cell in evidence["cells"]:
        for name, figure in cell["figures"].items() or [("-", {})]:
            unit = "bytes" if name == "peak_memory" else "s"
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
    chosen = parser.parse_args(arguments)
    if chosen.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    evidence = validate(chosen.device, Bar() if sys.stderr.isatty() else silent)
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
