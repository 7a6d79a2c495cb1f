"""Evidence files of ``experiments.validate`` as tables: predicted against measured, cell by cell."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from webapp.hosts.models import Validation

#: Column endings and the unit of their figures.
UNITS = (
    ("error", "fraction"),
    ("time", "s"),
    ("seconds", "s"),
    ("memory", "bytes"),
    ("bytes", "bytes"),
    ("peak", "bytes"),
)


@dataclass(frozen=True)
class Column:
    label: str
    right: bool


@dataclass(frozen=True)
class Cell:
    value: Any
    unit: str


@dataclass(frozen=True)
class Table:
    """One device's evidence; the errors are medians of absolute relative errors over the cells."""

    device: str
    measured_at: datetime
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    peak_error: float | None
    time_error: float | None


def newest() -> list[Table]:
    """The newest evidence of each device, by device name."""
    found: dict[str, Validation] = {}
    for validation in Validation.objects.order_by("device", "-measured_at"):
        found.setdefault(validation.device, validation)
    return [table_of(validation) for validation in found.values()]


def table_of(validation: Validation) -> Table:
    cells: Sequence[Mapping[str, Any]] = [flat(row) for row in validation.evidence.get("cells", [])]
    names = list(dict.fromkeys(name for row in cells for name in row))
    return Table(
        validation.device,
        validation.measured_at,
        tuple(Column(name.replace("_", " ").replace(".", " "), bool(unit_of(name))) for name in names),
        tuple(tuple(Cell(row.get(name), unit_of(name)) for name in names) for row in cells),
        _median_error(cells, "peak"),
        _median_error(cells, "time"),
    )


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"peak": {"error": 0.1}}`` -> ``{"peak.error": 0.1}``."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{name}.")
        else:
            out[f"{prefix}{name}"] = value if isinstance(value, str | int | float | None) else str(value)
    return out


def unit_of(name: str) -> str:
    return next((unit for word, unit in UNITS if word in name), "")


def _median_error(cells: Sequence[Mapping[str, Any]], about: str) -> float | None:
    errors = [
        abs(value)
        for row in cells
        for name, value in row.items()
        if about in name and "error" in name and isinstance(value, int | float)
    ]
    return statistics.median(errors) if errors else None
