"""The tables of the experiments' pages as they leave as a file: all rows, whatever page is shown."""

from __future__ import annotations

import json

from webapp.compare.export import Cell, Column, Table
from webapp.runs.document import PlanTable
from webapp.runs.models import Experiment, ExperimentQuerySet, Run

EXPERIMENT = ("experiment", "created", "runs")


def experiments_table(experiments: ExperimentQuerySet) -> Table:
    """Name, time and how many runs there are, by state; ``experiments`` come with their counts."""
    states = Run.State.values
    columns = (*map(Column, EXPERIMENT), *(Column(state, is_figure=True) for state in states))
    rows = tuple(_experiment_row(found, ("total", *states)) for found in experiments)
    return Table("Experiments", columns, rows)


def _experiment_row(experiment: Experiment, counts: tuple[str, ...]) -> tuple[Cell, ...]:
    """``counts`` name the annotations of ``with_counts``."""
    created = experiment.created_at.isoformat(timespec="seconds")
    return (experiment.name, created, *(int(getattr(experiment, name)) for name in counts))


def plan_table(table: PlanTable) -> Table:
    columns = tuple(map(Column, table.columns))
    rows = tuple(tuple(_cell(row.get(name)) for name in table.columns) for row in table.rows)
    return Table(f"Plan {table.name}", columns, rows)


def _cell(value: object) -> Cell:
    """Lists and objects are spelled as JSON."""
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)
