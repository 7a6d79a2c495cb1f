"""The evidence of one host: every cell of the grids of some families, and how far predictions are off."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from experiments.core.progress import Progress, part
from experiments.run import host, revision, versions
from experiments.validate import cluster, compilation, memory, parallel, serving
from experiments.validate.cells import EVERYTHING, Chosen, ValidationCell, errors

FORMAT = "mlsys-validation-1"
FAMILIES: dict[str, ModuleType] = {
    "memory": memory,
    "compilation": compilation,
    "parallel": parallel,
    "cluster": cluster,
    "serving": serving,
}


def validate(
    device: str,
    progress: Progress,
    families: Sequence[str] = ("memory", "compilation"),
    chosen: Chosen = EVERYTHING,
    keep: Callable[[dict[str, Any]], None] = lambda evidence: None,
) -> dict[str, Any]:
    """The cells of the grids of ``families`` on this host's ``device``.

    ``keep`` is given what there is after each cell, so that a cell which never ends costs itself alone.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    cells: list[ValidationCell] = []
    options: dict[str, Any] = {}
    evidence = _evidence(device, started, clock, options, cells)
    for done, family in enumerate(families):
        here = part(progress, done / len(families), (done + 1) / len(families))
        options |= chosen.of(FAMILIES[family].models(device))
        for cell in FAMILIES[family].cells(device, here, chosen):
            cells.append(cell)
            evidence = _evidence(device, started, clock, options, cells)
            keep(evidence)
    progress(1.0, "done")
    return evidence


def _evidence(
    device: str,
    started: datetime,
    clock: float,
    options: Mapping[str, Any],
    cells: Sequence[ValidationCell],
) -> dict[str, Any]:
    facts = host()
    return {
        "format": FORMAT,
        "kind": device,
        "device": facts.get("device") or f"cpu ({facts['cores']} cores)",
        "host": facts,
        "load": [round(load, 2) for load in os.getloadavg()],
        "threads": os.environ.get("OMP_NUM_THREADS") or facts["cores"],
        "versions": versions(),
        "revision": revision(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - clock, 3),
        "options": dict(options),
        "cells": [cell.to_json() for cell in cells],
        "errors": errors(cells),
    }
