"""How far simulated steps were from measured ones, by the evidence that ships with the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import experiments
from experiments.core.errors import BadInput
from experiments.core.units import human
from experiments.hardware import resolve

EVIDENCE = Path(experiments.__file__).resolve().parent.parent / "docs" / "evidence"


def describe_validation(device: str, family: str, folder: Path = EVIDENCE) -> str:
    """Return the median error of a step's time on ``device``, or that there is none, and on what there is."""
    found = dict(_errors(family, folder))
    known = {sheet: error for sheet, (_, error) in found.items()}
    if device in known:
        return f"{human(known[device], 'fraction')} median error of a step's time on {device}"
    others = (f"{human(error, 'fraction')} on {name}" for name, error in found.values())
    elsewhere = ", ".join(others)
    told = f"; the median error of {family} plans was {elsewhere}" if elsewhere else ""
    return f"not validated on {device}{told}"


def _errors(family: str, folder: Path) -> Iterator[tuple[str, tuple[str, float]]]:
    """Each validated device's sheet, with its name and the median error; the newest file last."""
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        cells = [cell for cell in content.get("cells", ()) if cell.get("family") == family]
        errors = [abs(error) for cell in cells if (error := _error(cell)) is not None]
        if errors:
            yield _sheet(content["device"]), (content["device"], median(errors))


def _error(cell: dict[str, Any]) -> float | None:
    found: float | None = (cell.get("figures") or {}).get("step_time", {}).get("error")
    return found


def _sheet(device: str) -> str:
    """A processor is on the sheet of any."""
    try:
        return resolve("cpu" if device.startswith("cpu") else device).device.name
    except BadInput:
        return device
