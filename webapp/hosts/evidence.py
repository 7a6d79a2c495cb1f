"""Evidence files of ``experiments.validate`` for the Hosts page: predicted against measured, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from statistics import median
from typing import Any

from experiments.core.differences import NO_DIFFERENCE, holds_no_difference
from experiments.core.errors import BadInput
from experiments.core.units import human
from experiments.hardware import resolve
from webapp.hosts.models import Validation


@dataclass(frozen=True)
class Line:
    """One metric of one cell. ``error`` is relative, (predicted - measured) / measured."""

    family: str
    model: str
    policy: str
    status: str
    reason: str
    metric: str
    predicted: float | None
    measured: float | None
    error: float | None
    low: float | None = None
    high: float | None = None

    @property
    def shown(self) -> float | str | None:
        """What was measured, or the words in place of a ratio whose interval holds 1."""
        if self.low is None or self.high is None or not holds_no_difference(self.low, self.high):
            return self.measured
        return NO_DIFFERENCE


@dataclass(frozen=True)
class Evidence:
    """The newest evidence of one device; ``errors`` has median, largest and cells of each metric."""

    device: str
    measured_at: datetime
    revision: str
    errors: Mapping[str, Mapping[str, float]]
    lines: tuple[Line, ...]


def newest() -> list[Evidence]:
    """One for each device and the families that were validated together, by device name."""
    found: dict[tuple[str, frozenset[str]], Validation] = {}
    for validation in Validation.objects.order_by("device", "-measured_at"):
        families = frozenset(cell.get("family", "") for cell in validation.evidence.get("cells", ()))
        found.setdefault((validation.device, families), validation)
    return [evidence_of(validation) for validation in found.values()]


def evidence_of(validation: Validation) -> Evidence:
    content = validation.evidence
    lines = tuple(line for cell in content.get("cells", ()) for line in _lines(cell))
    errors = content.get("errors", {})
    return Evidence(validation.device, validation.measured_at, content.get("revision", ""), errors, lines)


def _lines(cell: Mapping[str, Any]) -> Iterator[Line]:
    """A line for each compared metric; a cell that failed has one line with its reason."""
    about = (cell.get("family", ""), cell["model"].removeprefix("zoo:"), cell["policy"], cell["status"])
    reason, facts = cell.get("reason") or "", cell.get("facts") or {}
    if not cell.get("figures"):
        yield Line(*about, reason, "", None, None, None)
    for metric, figure in cell.get("figures", {}).items():
        names = ("predicted", "measured", "error", "low", "high")
        remark = reason or _say_turns(facts, metric)
        yield Line(*about, remark, metric, *(figure.get(name) for name in names))


def _say_turns(facts: Mapping[str, Any], metric: str) -> str:
    """How far apart the runs were that happened several times, the interval of the middle error, and what it
    is by the pace of short runs alone.
    """
    measured, errors = (facts.get(name, {}).get(metric) for name in ("measured_range", "error_interval"))
    if not measured or not errors or not measured[0]:
        return ""
    apart = human(measured[1] / measured[0] - 1, "fraction")
    low, high = (f"{round(100 * error):+d}" for error in errors)
    told = f"{facts['turns']} runs, {apart} apart; {low} to {high} % (90 %)"
    blind = facts.get("blind_error", {}).get(metric)
    return (
        told if blind is None else f"{told}; {round(100 * blind):+d} % without the meter of the host's pace"
    )


#: The figures of a cell that say how good a simulator is, those of time first.
TIMES = ("step_time", "latency", "latency_mean", "avg_jct")


#: Those of a simulated run: its compiler prices ops by roofline, a measured one by timing them.
SIMULATED = ("step_time", "roofline_latency", "latency")

#: Relative errors below this are not told apart.
NOTHING = 1e-4


def shown_error(error: float) -> str:
    """A relative error as people read it; twenty bytes of a gigabyte are no figure."""
    return human(error, "fraction") if abs(error) >= NOTHING else f"< {human(NOTHING, 'fraction')}"


@dataclass(frozen=True)
class SimulatorError:
    """How far a family's simulator was off on a device: medians of the cells' relative errors without their
    sign.
    """

    device: str
    medians: Mapping[str, float]

    @property
    def fraction(self) -> float:
        """The figure that stands for all: that of the time."""
        return next(
            (self.medians[name] for name in SIMULATED if name in self.medians), max(self.medians.values())
        )

    @property
    def words(self) -> str:
        parts = (f"{name.replace('_', ' ')} {shown_error(error)}" for name, error in self.medians.items())
        return f"median error on {self.device}: {', '.join(parts)}"


@dataclass(frozen=True, eq=False)
class SimulatorErrors:
    """The newest evidence of every device, by family, newest first; ``sheets`` names the devices' spec
    sheets. Two are the same where they are one object.
    """

    by_family: Mapping[str, tuple[tuple[str, SimulatorError], ...]]

    def of(self, family: str, hardware: str) -> SimulatorError | None:
        """That of the device that is simulated; ``None`` where the simulator was not validated on it.

        ``hardware`` is a run's label. Of several devices it is the largest error, and all must have one.
        """
        known = dict(reversed(self.by_family.get(family, ())))
        found = [known.get(sheet) for sheet in device_sheets(hardware)]
        errors = [error for error in found if error is not None]
        return max(errors, key=lambda error: error.fraction) if errors and len(errors) == len(found) else None


#: What a simulated figure says that stands on a device without evidence.
NOT_VALIDATED = "not validated on this device"


@cache
def device_sheets(hardware: str) -> tuple[str, ...]:
    """The devices' sheets behind a run's label of its hardware: ``2x8 a100-80g + 1x dgx-a100 with ...``."""
    names = (group.split(" with ")[0].split(" ")[-1] for group in hardware.split(" + "))
    return tuple(dict.fromkeys(_sheet(name) or name for name in names if name))


def simulator_errors() -> SimulatorErrors:
    """Those of the evidence that there is now: its files are read when others came or went."""
    return _errors_of(tuple(Validation.objects.order_by("pk").values_list("pk", "sha256", "measured_at")))


@lru_cache(maxsize=1)
def _errors_of(files: tuple[tuple[int, str, datetime], ...]) -> SimulatorErrors:
    found: dict[str, list[tuple[str, SimulatorError]]] = {}
    for evidence in sorted(newest(), key=lambda one: one.measured_at, reverse=True):
        for family, medians in _medians(evidence).items():
            found.setdefault(family, []).append(
                (_sheet(evidence.device), SimulatorError(evidence.device, medians))
            )
    return SimulatorErrors({family: tuple(errors) for family, errors in found.items()})


def _medians(evidence: Evidence) -> dict[str, dict[str, float]]:
    """By family and metric, the times first."""
    errors: dict[str, dict[str, list[float]]] = {}
    for line in sorted(evidence.lines, key=lambda line: line.metric not in TIMES):
        if line.error is not None:
            errors.setdefault(line.family, {}).setdefault(line.metric, []).append(abs(line.error))
    return {
        family: {metric: median(values) for metric, values in metrics.items()}
        for family, metrics in errors.items()
    }


def _sheet(device: str) -> str:
    """The spec sheet of a validated device; a processor is on the sheet of any CPU."""
    try:
        return resolve("cpu" if device.startswith("cpu") else device).device.name
    except BadInput:
        return ""
