"""The table that every exporter writes: headings with SI units, cells, what is the same in all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

Cell = str | int | float | bool | None
Rows = tuple[tuple[Cell, ...], ...]
T = TypeVar("T")
#: Rows of a long table that are read at once.
PART = 1_000


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
    rows: Rows
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
        return _first(len(self.rows), self.of)

    @property
    def notes(self) -> str:
        """What stands below the caption."""
        return ". ".join(filter(None, (self.said_once, self.part)))


@dataclass(frozen=True)
class LongTable:
    """``table`` has the first of its ``count`` rows, and each of ``following`` reads the next ones: a file
    begins before all of them are read.
    """

    table: Table
    following: tuple[Callable[[], Rows], ...] = ()
    count: int | None = None

    @property
    def whole(self) -> Table:
        """All of it, read now."""
        others = chain.from_iterable(read() for read in self.following)
        return replace(self.table, rows=(*self.table.rows, *others))

    @property
    def part(self) -> str:
        """As that of its table, of all its rows."""
        return _first(len(self.table.rows) if self.count is None else self.count, self.table.of)


def _first(count: int, of: str) -> str:
    return f"The first {count:,} of {of}" if of else ""


def in_parts(found: Sequence[T]) -> list[Sequence[T]]:
    """``PART`` of them and ``PART`` more; one that is empty where there are none."""
    return [found[first : first + PART] for first in range(0, max(1, len(found)), PART)]


def heading_of(column: Column) -> str:
    """What a file calls the column whose figures are in its SI unit."""
    return label_with_unit(column.label, column.unit)


def label_with_unit(label: str, unit: str) -> str:
    """``Step time (s)``."""
    return f"{label} ({unit})" if unit else label
