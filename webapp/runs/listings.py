"""The tables of a run's plan as they leave as a file: all rows, whatever page is shown."""

from __future__ import annotations

import json

from webapp.compare.export_table import Cell, Column, Table
from webapp.runs.document import PlanTable
from webapp.runs.plan_names import Named


def plan_table(table: PlanTable) -> Table:
    columns = tuple(map(Column, table.columns))
    rows = tuple(tuple(_cell(row.get(name)) for name in table.columns) for row in table.rows)
    return Table(f"Plan {table.name}", columns, rows)


def _cell(value: object) -> Cell:
    """Words give way to the value that they stand for; lists and objects are spelled as JSON."""
    if isinstance(value, Named) and value.value is not None:
        value = value.value
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)
