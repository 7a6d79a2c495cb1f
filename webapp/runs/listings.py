"""The tables of a run's plan as they leave as a file: all rows, whatever page is shown."""

from __future__ import annotations

import json

from webapp.compare.export import Cell, Column, Table
from webapp.runs.document import PlanTable


def plan_table(table: PlanTable) -> Table:
    columns = tuple(map(Column, table.columns))
    rows = tuple(tuple(_cell(row.get(name)) for name in table.columns) for row in table.rows)
    return Table(f"Plan {table.name}", columns, rows)


def _cell(value: object) -> Cell:
    """Lists and objects are spelled as JSON."""
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)
