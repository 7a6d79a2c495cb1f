"""Evidence files of ``experiments.validate`` for the Hosts page: predicted against measured, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from experiments.core.units import human
from webapp.hosts.models import Validation


@dataclass(frozen=True)
class Line:
    """One metric of one cell. ``error`` is relative, (predicted - measured) / measured."""

    model: str
    policy: str
    status: str
    reason: str
    metric: str
    predicted: float | None
    measured: float | None
    error: float | None


@dataclass(frozen=True)
class Evidence:
    """The newest evidence of one device; ``errors`` has median, largest and cells of each metric."""

    device: str
    measured_at: datetime
    revision: str
    errors: Mapping[str, Mapping[str, float]]
    lines: tuple[Line, ...]


def newest() -> list[Evidence]:
    """One for each device, by device name."""
    found: dict[str, Validation] = {}
    for validation in Validation.objects.order_by("device", "-measured_at"):
        found.setdefault(validation.device, validation)
    return [evidence_of(validation) for validation in found.values()]


def evidence_of(validation: Validation) -> Evidence:
    content = validation.evidence
    lines = tuple(line for cell in content.get("cells", ()) for line in _lines(cell))
    errors = content.get("errors", {})
    return Evidence(validation.device, validation.measured_at, content.get("revision", ""), errors, lines)


def _lines(cell: Mapping[str, Any]) -> Iterator[Line]:
    """A line for each compared metric; a cell that failed has one line with its reason."""
    about = (cell["model"].removeprefix("zoo:"), cell["policy"], cell["status"], cell.get("reason") or "")
    if not cell.get("figures"):
        yield Line(*about, "", None, None, None)
    for metric, figure in cell.get("figures", {}).items():
        yield Line(*about, metric, figure.get("predicted"), figure.get("measured"), figure.get("error"))


def simulator_error(metric: str = "step_time") -> str:
    """The median error of the newest evidence in words, empty where no device has been validated."""
    validation = Validation.objects.order_by("-measured_at").first()
    if validation is None:
        return ""
    median = validation.evidence.get("errors", {}).get(metric, {}).get("median")
    if median is None:
        return ""
    return f"median error of {metric.replace('_', ' ')} {human(median, 'fraction')} on {validation.device}"
