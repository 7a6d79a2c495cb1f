"""A CSV file as columns of text, and columns of text as numbers: strict, every complaint with its line and
column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

MAX_BYTES = 1 << 28
MAX_ROWS = 2_000_000
MAX_COLUMNS = 256
MAX_DIGITS = 40

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Table:
    """Columns of stripped text by header name; ``lines[row]`` is the line of the file a row ends on."""

    name: str
    columns: Mapping[str, tuple[str, ...]]
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.lines)

    def bad(self, column: str, row: int, what: str, expected: str) -> BadInput:
        value = self.columns[column][row]
        return BadInput(
            f"{value!r:.60} {what}", f"{self.name}, line {self.lines[row]}, column {column}", expected
        )

    def numbers(
        self, column: str, low: float = 0.0, high: float = 1e15, *, empty: float | None = None
    ) -> Floats:
        """The column as float64 within ``low..high``; empty cells become ``empty`` where that is given."""
        texts = self.columns[column]
        out = np.empty(len(texts))
        for row, text in enumerate(texts):
            if not text and empty is not None:
                out[row] = empty
            elif len(text) <= MAX_DIGITS and _NUMBER.fullmatch(text):
                out[row] = float(text)
            else:
                raise self.bad(column, row, "is not a number", "a finite decimal number")
        self._within(column, out, low, high)
        return out

    def counts(self, column: str, low: int = 1, high: int = 10**9) -> Ints:
        """The column as whole numbers within ``low..high`` (``8``, ``8.0`` and ``8e0`` are all eight)."""
        values = self.numbers(column, low, high)
        for row in np.flatnonzero(values != np.floor(values))[:1]:
            raise self.bad(column, int(row), "is not a whole number", "a whole number")
        return values.astype(np.int64)

    def _within(self, column: str, values: Floats, low: float, high: float) -> None:
        for row in np.flatnonzero((values < low) | (values > high))[:1]:
            raise self.bad(column, int(row), "is out of range", f"{low:g} to {high:g}")

    def unique(self, column: str) -> tuple[str, ...]:
        """The column as identifiers: none empty, none twice."""
        first: dict[str, int] = {}
        for row, text in enumerate(self.columns[column]):
            if not text:
                raise self.bad(column, row, "is empty", "an identifier")
            if text in first:
                taken = self.lines[first[text]]
                raise self.bad(column, row, f"appears twice (first on line {taken})", "unique identifiers")
            first[text] = row
        return tuple(first)

    def either(self, *names: str) -> str:
        """The first of ``names`` that is a column; ``BadInput`` when none is."""
        found = next((name for name in names if name in self.columns), None)
        if found is None:
            raise BadInput(
                f"no column {names[0]!r} among {', '.join(self.columns)[:200]}",
                f"{self.name}, line 1",
                "a column " + " or ".join(names),
            )
        return found


def header_of(head: bytes) -> frozenset[str]:
    """Column names on the first line of a file, as far as it looks like CSV: for ``recognizes``."""
    line = head.removeprefix(b"\xef\xbb\xbf").splitlines()[:1]
    if not line or b"," not in line[0] or b"\0" in line[0] or len(line[0]) > 10_000:
        return frozenset()
    text = line[0].decode("utf-8", "replace")
    return frozenset(cell.strip() for cell in next(csv.reader([text]), []))


def read_table(data: bytes, name: str, required: Sequence[str], *, columns_are: Sequence[str] = ()) -> Table:
    """Parse ``data`` (UTF-8, with or without BOM; LF or CRLF). ``BadInput`` names the line.

    All rows have as many cells as the header; blank lines are skipped; ``required`` columns must be there.
    ``columns_are`` is the header of a file that may come without one.
    """
    if len(data) > MAX_BYTES:
        raise BadInput(f"{len(data)} bytes", name, f"at most {MAX_BYTES}")
    rows, lines = _rows(_text(data, name), name)
    if not rows:
        raise BadInput("the file is empty", name, "a header line and rows")
    if columns_are and [cell.strip() for cell in rows[0]] != [*columns_are]:
        if len(rows[0]) != len(columns_are):
            what, expected = f"{len(rows[0])} cells", f"{len(columns_are)}: {', '.join(columns_are)}"
            raise BadInput(what, f"{name}, line {lines[0]}", expected)
        rows, lines = [[*columns_are], *rows], [lines[0], *lines]
    header = _header(rows.pop(0), name, required)
    if not rows:
        raise BadInput("no rows after the header", name, "at least one row")
    columns = {
        column: tuple(map(str.strip, cells))
        for column, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
    return Table(name, columns, tuple(lines[1:]))


def _text(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise BadInput(f"{byte} is not UTF-8 text", f"{name}, line {line}", "UTF-8 text") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInput("a NUL character", f"{name}, line {line}", "plain text")
    return text


def _rows(text: str, name: str) -> tuple[list[list[str]], list[int]]:
    """All rows of cells, the header first, and the line that each ends on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if not row or row == [""]:
                continue
            if rows and len(row) != len(rows[0]):
                expected = f"{len(rows[0])} cells as in the header"
                raise BadInput(f"{len(row)} cells", f"{name}, line {reader.line_num}", expected)
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) > MAX_ROWS + 1:
                raise BadInput("too many rows", f"{name}, line {reader.line_num}", f"at most {MAX_ROWS}")
    except csv.Error as error:
        raise BadInput(
            f"not CSV: {error}", f"{name}, line {reader.line_num}", "comma-separated values"
        ) from None
    return rows, lines


def _header(cells: Sequence[str], name: str, required: Sequence[str]) -> list[str]:
    where = f"{name}, line 1"
    header = [cell.strip() for cell in cells]
    if len(header) > MAX_COLUMNS:
        raise BadInput(f"{len(header)} columns", where, f"at most {MAX_COLUMNS}")
    for column in header:
        if header.count(column) > 1:
            raise BadInput(f"column {column!r:.60} appears twice", where, "unique column names")
    for column in required:
        if column not in header:
            listed = ", ".join(header)[:200]
            raise BadInput(f"column {column!r} is missing from {listed}", where, ", ".join(required))
    return header
