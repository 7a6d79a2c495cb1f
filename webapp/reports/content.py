"""What the search of a block finds: a table and for plots a figure; as JSON where it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.core.metrics import known_or_plain
from webapp.accounts.models import Project
from webapp.compare.export_table import Cell, Column, Table
from webapp.history.table import export_of, groups_of, runs_of
from webapp.reports.blocks import PLOT, Block

#: The column of a table of runs that names the run.
RUN = "run"


@dataclass(frozen=True)
class Content:
    """``runs`` are the identities of the table's rows, none where these are groups. ``plot`` is what
    ``plots.js`` draws, but for the addresses of its ``runs``, which change with the project's name.
    """

    table: Table
    runs: tuple[str, ...]
    plot: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Content:
        """What ``to_json`` made and the database kept."""
        told = data["table"]
        table = Table(
            told["title"],
            tuple(Column(**column) for column in told["columns"]),
            tuple(tuple(row) for row in told["rows"]),
            tuple((label, value) for label, value in told["constants"]),
            told.get("of", ""),  # what was kept before this was counted says nothing of it
        )
        return cls(table, tuple(data["runs"]), data["plot"])


def content_of(project: Project, block: Block) -> Content:
    """What the block's search finds now."""
    if block.query.group:
        table = replace(groups_of(project, block.query, block.limit), title=block.heading)
        return Content(_in_words(table), (), _lanes(table, block) if block.kind == PLOT else None)
    chosen = (block.x, block.y) if block.kind == PLOT else block.columns
    found = export_of(runs_of(project), block.query, chosen, block.limit).whole
    named = tuple(str(row[0]) for row in found.rows)
    rows = tuple(row[1:] for row in found.rows)
    table = replace(found, title=block.heading, columns=found.columns[1:], rows=rows)
    plot = _cloud(table, named, block) if block.kind == PLOT else None
    return Content(_in_words(without_repetition(table)), named, plot)


def without_repetition(table: Table) -> Table:
    """A table as narrow as paper: words that are the same in all rows are said once, empty columns go."""
    if len(table.rows) < 2:
        return table
    cells = list(zip(*table.rows, strict=True))
    same = [len(set(column)) == 1 for column in cells]
    once = [place for place, column in enumerate(table.columns) if same[place] and not column.is_figure]
    constants = [(table.columns[place].label, str(cells[place][0])) for place in once if cells[place][0]]
    kept = [place for place in range(len(table.columns)) if place not in once]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    columns = tuple(table.columns[place] for place in kept)
    return replace(table, columns=columns, rows=rows, constants=tuple(constants))


def _in_words(table: Table) -> Table:
    """Its headings as pages have them: ``step time`` for ``step_time``, ``min of step time``, ``runs``."""
    columns = [replace(one, label=_words(one.label)) if one.is_figure else one for one in table.columns]
    return replace(table, columns=tuple(columns))


def _words(name: str) -> str:
    if name == "count":
        return "runs"
    function, opening, of = name.partition("(")
    return f"{function} of {_words(of.removesuffix(')'))}" if opening else known_or_plain(name).label


def _cloud(table: Table, runs: Sequence[str], block: Block) -> dict[str, Any]:
    """A point for each run that has both figures, one colour for each policy."""
    labels = [column.label for column in table.columns]
    across, up, policy = labels.index(block.x), labels.index(block.y), labels.index("policy")
    by_policy: dict[str, dict[str, Any]] = {}
    for run, row in zip(runs, table.rows, strict=True):
        if row[across] is not None and row[up] is not None:
            name = str(row[policy])
            line = by_policy.setdefault(name, {"name": name, "x": [], "y": [], "runs": []})
            line["x"].append(row[across])
            line["y"].append(row[up])
            line["runs"].append(run)
    ends = {"x": known_or_plain(block.x), "y": known_or_plain(block.y)}
    axes = {f"{end}_label": known.label for end, known in ends.items()}
    axes |= {f"{end}_unit": known.unit for end, known in ends.items()}
    return {**_empty(block), **axes, "series": list(by_policy.values())}


def _lanes(table: Table, block: Block) -> dict[str, Any]:
    """A lane for each group, with a point at the aggregate that the block names."""
    fields = len(block.query.group)
    labels = [column.label for column in table.columns]
    name = block.y or labels[fields]
    at = labels.index(name)
    told = [(_lane(row[:fields]), row[at]) for row in table.rows if row[at] is not None]
    line = {"name": name, "x": [value for _, value in told], "y": [lane for lane, _ in told]}
    axes = {"x_label": _words(name), "x_unit": table.columns[at].unit, "y_label": "", "y_unit": ""}
    return {**_empty(block), **axes, "series": [line], "lanes": [lane for lane, _ in told]}


def _lane(cells: Sequence[Cell]) -> str:
    return ", ".join(str(cell) for cell in cells) or "–"


def _empty(block: Block) -> dict[str, Any]:
    return {"title": block.heading, "kind": "scatter", "log": "", "sampled": None}
