"""Dates with times of day, as clusters log them: ``2020-06-09 18:41:01``, without a zone."""

from __future__ import annotations

import math
import re
from datetime import datetime

import numpy as np

from experiments.readers.csv_table import Table
from experiments.workloads.step import Floats

EXPECTED = "YYYY-MM-DD hh:mm:ss"
#: What stands where a log has no time.
MISSING = frozenset({"", "None", "NaT", "nan", "NULL", "Unknown"})
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_BEGIN = datetime(2000, 1, 1)


def seconds_of(text: str) -> float | None:
    """Seconds since the year 2000 on the log's own clock; ``None`` for what is no time."""
    if not _STAMP.fullmatch(text):
        return None
    try:
        return (datetime.fromisoformat(text) - _BEGIN).total_seconds()
    except ValueError:
        return None


def stamps(table: Table, column: str) -> Floats:
    """A column of times in s; NaN where there is none. ``BadInput`` at the first that is no time."""
    out = np.empty(len(table))
    for row, text in enumerate(table.columns[column]):
        seconds = math.nan if text in MISSING else seconds_of(text)
        if seconds is None:
            raise table.bad(column, row, "is not a time", f"{EXPECTED}, or nothing")
        out[row] = seconds
    return out
