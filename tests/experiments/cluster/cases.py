"""Figures that peers printed or that their programs gave, from the file that lists them."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

FILE = "cluster/open_cases.csv"


def open_cases(shared: Path) -> dict[str, dict[str, float]]:
    """Return the figures of each case by the peer's names."""
    found = defaultdict[str, dict[str, float]](dict)
    with (shared / FILE).open(newline="") as file:
        for row in csv.DictReader(file):
            found[row["case"]][row["metric"]] = float(row["value"])
    return dict(found)
