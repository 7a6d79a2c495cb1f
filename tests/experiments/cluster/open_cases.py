"""The rows of open_cases.csv: figures that published programs print or gave when they were run."""

from __future__ import annotations

import csv
from pathlib import Path


def open_cases(shared: Path, prefix: str) -> list[dict[str, str]]:
    """The rows whose case begins with ``prefix``."""
    with (shared / "cluster/open_cases.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case"].startswith(prefix)]
    assert rows, f"no case of {prefix}"
    return rows


def figures_by_case(shared: Path, prefix: str) -> dict[str, dict[str, float]]:
    """The figures of each such case by the program's own names."""
    found: dict[str, dict[str, float]] = {}
    for row in open_cases(shared, prefix):
        found.setdefault(row["case"], {})[row["metric"]] = float(row["value"])
    return found
