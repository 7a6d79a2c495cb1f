"""The side file of a list of operators: how long other systems took for each, as figures of papers are
shipped.

The first line names the columns: the operator's, then one for each system. Cells are separated by tabs (by
spaces where there are none) and hold milliseconds; a table may stand in several parts side by side, each
headed as the first. What was not measured is empty, ``0`` or ``N/A``. Lines above the columns that start with
``# `` say where the times come from.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

from experiments.core.errors import BadInput
from experiments.readers import archive

MILLISECOND = 1e-3
MOST_SYSTEMS, LONGEST_SECONDS = 30, 1e6
ABSENT = ("", "0", "N/A")

#: Seconds by system, then by operator.
Times = Mapping[str, Mapping[str, float]]


def operator_times(path: str, operators: Collection[str]) -> Times:
    """The times of ``operators`` in the file at ``path``; others are left out, at least one must be there."""
    source = Path(path)
    try:
        data, name = archive.unpack(source.read_bytes(), source.name)
    except OSError as error:
        raise BadInput(error.strerror or str(error), source.name, "a readable table of times") from None
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8", name, "text") from None
    first = next((row for row, line in enumerate(lines) if not line.startswith("# ")), 0)
    systems, width = _heading(lines[first] if lines else "", f"{name}: line {first + 1}")
    found: dict[str, dict[str, float]] = {system: {} for system in systems}
    for number, line in enumerate(lines[first + 1 :], first + 2):
        for part in _parts(line, width, f"{name}: line {number}"):
            if part[0] in operators:
                _add(found, part, f"{name}: line {number}")
    if not any(found.values()):
        raise BadInput(
            "names none of the operators", name, "names of the list, such as " + next(iter(operators))
        )
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()


def _heading(line: str, where: str) -> tuple[list[str], int]:
    """The systems, and the columns of one part."""
    cells = _cells(line)
    repeated = cells.index(cells[0], 1) if cells and cells[0] in cells[1:] else len(cells)
    systems = cells[1:repeated]
    if not 1 <= len(systems) <= MOST_SYSTEMS or len(set(systems)) < len(systems) or "" in systems:
        raise BadInput(f"{line!r:.80}", where, "a column for the operator, then one for each system, once")
    if len(cells) % repeated or cells != cells[:repeated] * (len(cells) // repeated):
        raise BadInput(
            "parts with other columns",
            where,
            "the columns of the first: " + ", ".join(cells[:repeated]),
        )
    return systems, repeated


def _parts(line: str, width: int, where: str) -> list[list[str]]:
    """The parts of a line that name an operator."""
    cells = _cells(line)
    found = [cells[start : start + width] for start in range(0, len(cells), width)]
    named = [part for part in found if part[0]]
    if short := [part for part in named if len(part) != width]:
        raise BadInput(
            f"{len(short[0]) - 1} times of {short[0][0]!r:.40}",
            where,
            f"{width - 1}, as the first line names",
        )
    return named


def _add(found: dict[str, dict[str, float]], part: list[str], where: str) -> None:
    operator, *cells = part
    for (system, known), cell in zip(found.items(), cells, strict=True):
        if operator in known:
            raise BadInput(f"operator {operator!r:.40} appears twice", where, "each once")
        if cell not in ABSENT:
            known[operator] = _seconds(cell, f"{where}: {system}")


def _seconds(cell: str, where: str) -> float:
    try:
        value = float(cell) * MILLISECOND
    except ValueError:
        value = math.nan
    if not 0 < value <= LONGEST_SECONDS:
        raise BadInput(f"{cell!r:.40}", where, "milliseconds over 0, or 0 or N/A where not measured")
    return value
