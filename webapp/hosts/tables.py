"""Hosts, their devices, and how well the simulator predicts each device, as lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import django_tables2 as tables
from django.template.loader import render_to_string
from django.utils.html import format_html

from experiments.core.metrics import METRICS
from experiments.core.units import human
from webapp import presentation
from webapp.compare.listing import FigureColumn, Listing, MetricColumn, MomentColumn, StateColumn
from webapp.hosts import validating
from webapp.hosts.evidence import NOTHING, TIMES, Evidence, Line, shown_error
from webapp.hosts.models import Host
from webapp.runs.models import Run


class HostTable(Listing):
    """Rows with the load of ``with_load``."""

    title = "Hosts"
    search_fields = ("name", "sandbox_tier")
    name = tables.Column(verbose_name="Host")
    is_up = tables.Column(verbose_name="State", orderable=False)
    busy = FigureColumn(verbose_name="Busy")
    slots = FigureColumn(verbose_name="Slots", visible=False)
    cores = FigureColumn(verbose_name="Cores")
    memory_bytes = FigureColumn(verbose_name="Memory", unit="bytes")
    device_kinds = tables.Column(verbose_name="Can measure on", orderable=False)
    sandbox_tier = tables.Column(verbose_name="Sandbox")
    heartbeat_at = MomentColumn(verbose_name="Last heard")
    versions = tables.Column(verbose_name="Versions", orderable=False)

    class Meta:
        order_by = "name"
        row_attrs = {"id": lambda record: f"host-{record.pk}"}

    def render_is_up(self, record: Host) -> Any:
        told = self.value_is_up(record)
        return presentation.state_badge(told.partition(":")[0], told)

    def value_is_up(self, record: Host) -> str:
        if not record.is_up:
            return "away"
        return f"claims nothing: {record.trouble}" if record.trouble else "up"

    def render_busy(self, value: int, record: Host) -> str:
        return f"{value} of {record.slots} slot{'s' if record.slots != 1 else ''}"

    def value_busy(self, value: int) -> int:
        return value

    def render_device_kinds(self, value: list[str]) -> str:
        return ", ".join(value) or "–"

    def render_versions(self, value: dict[str, str]) -> str:
        return ", ".join(f"{name} {version}" for name, version in sorted(value.items()))


@dataclass(frozen=True)
class DeviceRow:
    """A device of a host; ``validation`` is the last run that held simulated figures against it."""

    host_id: int
    host: str
    name: str
    kind: str
    memory_bytes: int | None
    validation: Run | None


def device_rows(hosts: Iterable[Host]) -> list[DeviceRow]:
    last = validating.last_runs()
    return [
        DeviceRow(
            host.pk,
            host.name,
            device["name"],
            device["kind"],
            device.get("memory_bytes"),
            last.get((host.name, device["kind"])),
        )
        for host in hosts
        for device in host.devices
    ]


class DeviceTable(Listing):
    title = "Devices"
    host = tables.Column(verbose_name="Host")
    name = tables.Column(verbose_name="Device")
    kind = tables.Column(verbose_name="Kind")
    memory_bytes = FigureColumn(verbose_name="Memory", unit="bytes")
    act = tables.Column(
        accessor="host_id", verbose_name="Validation", orderable=False, exclude_from_export=True
    )

    class Meta:
        prefix = "devices-"

    def render_act(self, record: DeviceRow) -> str:
        run = record.validation
        about = {"device": record, "run": run, "is_living": run is not None and not run.is_final}
        return render_to_string("hosts/validate.html", about, self.request)


@dataclass(frozen=True)
class ValidationRow:
    """A line of evidence with the device it was measured on."""

    device: str
    line: Line


def validation_rows(found: Iterable[Evidence]) -> Iterator[ValidationRow]:
    return (ValidationRow(evidence.device, line) for evidence in found for line in evidence.lines)


@dataclass(frozen=True)
class CellRow:
    """One model under one policy: its memory and its time (of a step, an answer or a job), each ``None``
    where not compared.
    """

    device: str
    family: str
    model: str
    policy: str
    status: str
    reason: str
    memory: Line | None
    time: Line | None


def cell_rows(found: Iterable[Evidence]) -> list[CellRow]:
    """The lines of the evidence, those of one cell side by side."""
    cells: dict[tuple[str, ...], list[ValidationRow]] = {}
    for row in validation_rows(found):
        about = (row.device, row.line.family, row.line.model, row.line.policy, row.line.status)
        cells.setdefault(about, []).append(row)
    return [_cell(rows) for rows in cells.values()]


def _cell(rows: list[ValidationRow]) -> CellRow:
    lines = {row.line.metric: row.line for row in rows}
    time = next((lines[name] for name in TIMES if name in lines), None)
    first = time or rows[0].line
    about = (rows[0].device, first.family, first.model, first.policy, first.status, first.reason)
    return CellRow(*about, memory=lines.get("peak_memory") or lines.get("peak_memory_per_device"), time=time)


class ErrorColumn(FigureColumn):
    """A relative error; where there is a ``goal``, with its sign and a mark that says whether it
    is within. ``goals`` are those of families with another one.
    """

    def __init__(
        self, goal: float | None = None, goals: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.goal, self.goals = goal, dict(goals or {})

    def render(self, value: float, record: Any = None) -> Any:
        if self.goal is None:
            return presentation.error(value)
        return judge_error(value, self.goals.get(record.family, self.goal))


def judge_error(error: float, goal: float) -> Any:
    """An error with its sign, and a mark next to the color that says whether it is within the goal."""
    within = abs(error) <= goal
    return format_html(
        '<span class="change {}" title="{} {}, {}">{}{}</span>',
        "better" if within else "worse",
        "within" if within else "beyond",
        human(goal, "fraction"),
        presentation.exact(error),
        "+" if error >= NOTHING else "",
        shown_error(error),
    )


class CellTable(Listing):
    """Predicted against measured, a row for each cell: readable with a hundred of them."""

    title = "Predicted against measured, by model and policy"
    device = tables.Column(verbose_name="Device", visible=False)
    family = tables.Column(verbose_name="Family", visible=False)
    model = tables.Column(verbose_name="Model")
    policy = tables.Column(verbose_name="Policy")
    status = StateColumn(verbose_name="State")
    memory_predicted = FigureColumn(
        accessor="memory__predicted", verbose_name="Peak, predicted", unit="bytes"
    )
    memory_measured = FigureColumn(accessor="memory__measured", verbose_name="measured", unit="bytes")
    memory_error = ErrorColumn(0.05, accessor="memory__error", verbose_name="error", unit="fraction")
    time_predicted = FigureColumn(accessor="time__predicted", verbose_name="Time, predicted", unit="s")
    time_measured = FigureColumn(accessor="time__measured", verbose_name="measured", unit="s")
    time_error = ErrorColumn(
        0.15, {"cluster": 0.1}, accessor="time__error", verbose_name="error", unit="fraction"
    )
    reason = tables.Column(verbose_name="Remark")

    class Meta:
        prefix = "cells-"


class ValidationTable(Listing):
    """Figures of several metrics share a column here, so a file has their SI unit next to them."""

    title = "Predicted against measured"
    device = tables.Column(verbose_name="Device")
    model = tables.Column(accessor="line__model", verbose_name="Model")
    policy = tables.Column(accessor="line__policy", verbose_name="Policy")
    status = StateColumn(accessor="line__status", verbose_name="State")
    metric = tables.Column(accessor="line__metric", verbose_name="Metric")
    unit = tables.Column(accessor="line__metric", verbose_name="Unit", visible=False)
    predicted = MetricColumn(accessor="line__predicted", metric="line__metric", verbose_name="Predicted")
    measured = MetricColumn(
        accessor="line__shown", metric="line__metric", verbose_name="Measured", order_by="line__measured"
    )
    error = ErrorColumn(accessor="line__error", verbose_name="Error", unit="fraction")
    reason = tables.Column(accessor="line__reason", verbose_name="Remark")

    class Meta:
        prefix = "validation-"

    def render_metric(self, value: str) -> str:
        return presentation.metric_label(value) if value else "–"

    def value_metric(self, value: str) -> str:
        return value

    def render_unit(self, value: str) -> str:
        return METRICS[value].unit if value in METRICS else ""
