"""A table as Apache Parquet: figures as numbers in SI units, words as text, what rows share as columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import count
from typing import Any

from webapp.compare.export_table import Cell, Table, heading_of


def to_parquet(table: Table) -> bytes:
    """The file. A column of numbers alone is one of numbers, any other text; what is missing is null."""
    import pyarrow  # 50 MB that only this needs
    import pyarrow.parquet

    headings = [heading_of(column) for column in table.columns]
    names = _distinct([*headings, *(name for name, _ in table.constants)])
    arrays = [
        _array([row[place] for row in table.rows], column.is_figure, pyarrow)
        for place, column in enumerate(table.columns)
    ]
    arrays += [_array([value] * len(table.rows), False, pyarrow) for _, value in table.constants]
    told = {"title": ". ".join(filter(None, (table.title, table.part)))}
    made = pyarrow.table(arrays, names=names).replace_schema_metadata(told)
    out = io.BytesIO()
    pyarrow.parquet.write_table(made, out, compression="zstd")
    return out.getvalue()


def _array(cells: Sequence[Cell], is_figure: bool, pyarrow: Any) -> Any:
    """What is missing everywhere is a number in a column of figures, else text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return pyarrow.array(cells, pyarrow.bool_())
    if kinds == {int}:
        return pyarrow.array(cells, pyarrow.int64())
    if (kinds and kinds <= {int, float}) or (not kinds and is_figure):
        return pyarrow.array([None if cell is None else float(cell) for cell in cells], pyarrow.float64())
    return pyarrow.array([None if cell is None else str(cell) for cell in cells], pyarrow.string())


def _distinct(names: Sequence[str]) -> list[str]:
    """Each once, as readers of columns by name want them."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name} {number}" for number in count(2))
        found.append(name if name not in found else next(one for one in numbered if one not in found))
    return found
