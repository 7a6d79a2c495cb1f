"""``requests-csv``: this lab's own plain request trace: ``arrival,prompt,output`` and, optionally, ``model``,
``slo`` (the longest time to an answer, s), ``session`` and ``priority``.
"""

from __future__ import annotations

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import header_of, read_table
from experiments.readers.request_rows import request_reading

COLUMNS = ("arrival", "prompt", "output")


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    return request_reading(table, table.numbers("arrival"), "prompt", "output", options, ())


READER = Reader(
    "requests-csv",
    "requests",
    "a plain request trace: arrival (s), prompt and output (tokens); optional model, slo (s), session (CSV)",
    _recognizes,
    _read,
)
