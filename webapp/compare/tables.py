"""The comparison as an exportable table."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.core.metrics import METRICS
from webapp.compare.comparison import Comparison, Line
from webapp.compare.export_table import Cell, Column, Table
from webapp.hosts.evidence import SimulatorErrors
from webapp.presentation import pretty


def export_table(comparison: Comparison, title: str, errors: SimulatorErrors) -> Table:
    """What is shown, mode and status always among it; repeats with number and interval.

    The error of the simulator stands next to the mode where it is known.
    """
    known = [_error(line, errors) for line in comparison.lines]
    has_errors = any(error is not None for error in known)
    columns = [Column("run"), Column("mode"), Column("status")]
    if has_errors:
        columns.insert(2, Column("simulator error", "fraction", is_figure=True))
    if comparison.has_dashboard_statuses:
        columns.append(Column("PyTorch's status"))
    columns += [Column(column.label) for column in comparison.parameters]
    if comparison.is_folded:
        columns.append(Column("n", is_figure=True))
    for column in comparison.metrics:
        columns.extend(_metric_columns(comparison, column.metric))
    rows = tuple(
        tuple(_row(comparison, line, (error,) if has_errors else ()))
        for line, error in zip(comparison.lines, known, strict=True)
    )
    shown = {column.label for column in comparison.parameters}
    constants = tuple(row for row in comparison.constants if row[0] not in shown)
    return Table(title, tuple(columns), rows, constants)


def _error(line: Line, errors: SimulatorErrors) -> float | None:
    entry = line.entry
    found = errors.of(entry.run.family, entry.run.hardware) if entry.mode == "simulated" else None
    return found.fraction if found else None


def _metric_columns(comparison: Comparison, name: str) -> Iterator[Column]:
    metric = METRICS[name]
    yield Column(metric.label, metric.unit, is_figure=True)
    if comparison.is_folded:
        yield Column(f"± {metric.label}", metric.unit, is_figure=True)
    if name in comparison.with_ends:
        yield Column(f"{metric.label} low", metric.unit, is_figure=True)
        yield Column(f"{metric.label} high", metric.unit, is_figure=True)
    if comparison.baseline:
        yield Column(f"change of {metric.label}", "fraction", is_figure=True)


def _row(comparison: Comparison, line: Line, error: tuple[float | None, ...]) -> Iterator[Cell]:
    entry = line.entry
    yield entry.name
    yield entry.mode
    yield from error
    yield ", ".join(entry.statuses.values())
    if comparison.has_dashboard_statuses:
        yield entry.dashboard_status
    for parameter in line.parameters:
        value = parameter.value
        yield value if value is None or isinstance(value, str | int | float) else pretty(value)
    if comparison.is_folded:
        yield len(entry.runs)
    for cell in line.cells:
        found = cell.estimate
        yield (found.words or found.mean) if found else None
        if comparison.is_folded:
            yield found.half_width if found else None
        if cell.metric in comparison.with_ends:
            yield found.low if found else None
            yield found.high if found else None
        if comparison.baseline:
            yield cell.change
