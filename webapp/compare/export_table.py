"""The table that every exporter writes: headings with SI units, cells, what is the same in all rows."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """A heading and the SI unit of its figures; ``is_figure`` columns are aligned right."""

    label: str
    unit: str = ""
    is_figure: bool = False


@dataclass(frozen=True)
class Table:
    """What is exported: rows as long as ``columns``; ``title`` becomes caption and file name.

    ``constants`` are the same in all rows: columns of a CSV, a line below the caption of other formats.
    ``of`` says how many rows there are where these are the first of them.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    constants: tuple[tuple[str, str], ...] = ()
    of: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    @property
    def said_once(self) -> str:
        """``The same in all: batch 8, sequence 1024``; empty where nothing is."""
        said = ", ".join(f"{label} {value}" for label, value in self.constants)
        return f"The same in all: {said}" if said else ""

    @property
    def part(self) -> str:
        """``The first 20 of 34``; empty where these are all."""
        return f"The first {len(self.rows):,} of {self.of}" if self.of else ""

    @property
    def notes(self) -> str:
        """What stands below the caption."""
        return ". ".join(filter(None, (self.said_once, self.part)))


def heading_of(column: Column) -> str:
    """What a file calls the column whose figures are in its SI unit."""
    return label_with_unit(column.label, column.unit)


def label_with_unit(label: str, unit: str) -> str:
    """``Step time (s)``."""
    return f"{label} ({unit})" if unit else label
