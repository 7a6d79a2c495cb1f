"""Outcomes as they were stored while a plan had ``pool``, ``paging`` and ``artifact``: one of each kind, of
one step.

The step is ``linear_chain``; each document holds its spec, so that it can be run again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.workloads.step import Step
from tests.experiments.memory.steps import MS, Row, make_step

FOLDER = Path(__file__).parent
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))
MIB = 2**20


def stored_run(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return document


def linear_chain() -> Step:
    """Four layers forward and backward: parameters of 2 MiB, activations of 4 MiB, a millisecond each."""
    activations, parameters = [f"x{i}" for i in range(4)], [f"w{i}" for i in range(4)]
    rows: list[Row] = [
        (f"linear_{i}", "forward", MS, [*activations[max(0, i - 1) : i], parameters[i]], [activations[i]])
        for i in range(4)
    ]
    rows += [
        (f"linear_{i}_backward", "backward", MS, [activations[i], parameters[i]], [])
        for i in reversed(range(4))
    ]
    sizes = dict.fromkeys(activations, 4 * MIB) | dict.fromkeys(parameters, 2 * MIB)
    return make_step(rows, sizes, persistent=parameters)
