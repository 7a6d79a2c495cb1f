"""Claims printed as they come: lines for people, or one JSON array that is whole however it ends."""

from __future__ import annotations

import json
import sys
from typing import Any

from experiments.core.units import significant

#: Widths of what stands before the reason; a longer name is printed whole and shifts its own line.
WIDTHS = (20, 40, 10, 18, 21)


class Rows:
    """Lines of text, printed one by one; ``shown`` has the rows so far."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self.begin()

    def begin(self) -> None:
        print(_line(("POLICY", "CLAIM", "PAPER", "OURS", "VERDICT"), "WHY"))

    def add(self, row: dict[str, Any]) -> None:
        self.shown.append(row)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)  # the bar, which is drawn anew below
        self.show(row)
        sys.stdout.flush()

    def show(self, row: dict[str, Any]) -> None:
        figures = (_number(row["value"]), row["shown"] or "-")
        print(_line((row["policy"], row["claim"], *figures, row["verdict"]), row["reason"]))

    def end(self) -> None:
        """Print what comes after the last row."""


class JsonRows(Rows):
    """The elements of one JSON array."""

    def begin(self) -> None:
        sys.stdout.write("[")

    def show(self, row: dict[str, Any]) -> None:
        separator = "\n" if len(self.shown) == 1 else ",\n"
        sys.stdout.write(separator + json.dumps(row, indent=1, ensure_ascii=False, allow_nan=False))

    def end(self) -> None:
        sys.stdout.write("\n]\n")


def rows_for(as_json: bool) -> Rows:
    return JsonRows() if as_json else Rows()


def _line(cells: tuple[str, ...], reason: str) -> str:
    return "  ".join([cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)] + [reason])


def _number(value: float | None) -> str:
    return "-" if value is None else significant(value)
