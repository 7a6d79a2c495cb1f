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
