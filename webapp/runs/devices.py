"""Devices of the sheets, as the form of a new experiment offers them."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import hardware
from webapp.runs.forms import ExperimentForm


@dataclass(frozen=True)
class DeviceChoice:
    """A sheet by name, with its memory in bytes."""

    name: str
    memory: float
    checked: bool


def device_choices(form: ExperimentForm) -> list[DeviceChoice]:
    """Accelerators by memory, processors last."""
    chosen = set(form["devices"].value() or ())
    sheets = [row for row in hardware.catalog() if row["kind"] == "device"]
    ordered = sorted(sheets, key=lambda row: (row["vendor"] == "generic", row["memory_bytes"]))
    return [DeviceChoice(row["name"], float(row["memory_bytes"]), row["name"] in chosen) for row in ordered]
