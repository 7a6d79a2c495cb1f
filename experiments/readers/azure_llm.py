"""``azure-llm``: the Azure LLM inference traces (``TIMESTAMP,ContextTokens,GeneratedTokens``)."""

from __future__ import annotations

import re

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.request_rows import request_reading
from experiments.workloads.step import Floats

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(\+00:00|Z)?", re.ASCII)


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _seconds(table: Table, column: str) -> Floats:
    """Time stamps as seconds from the earliest one; ``BadInput`` at the first that is none."""
    stamps = table.columns[column]
    for row, text in enumerate(stamps):
        if not _STAMP.fullmatch(text):
            raise table.bad(column, row, "is not a time", "YYYY-MM-DD hh:mm:ss.fraction in UTC")
    plain = [text.removesuffix("Z").removesuffix("+00:00") for text in stamps]
    try:
        times = np.array(plain, dtype="datetime64[ns]")
    except ValueError:
        row = next(row for row, text in enumerate(plain) if not _is_time(text))
        raise table.bad(column, row, "is not a time", "a date and time that exist") from None
    since: Floats = (times - times.min()).astype(np.int64) / 1e9
    return since


def _is_time(text: str) -> bool:
    try:
        np.datetime64(text, "ns")
    except ValueError:
        return False
    return True


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    assumed = ("TIMESTAMP is the arrival of the request, in UTC",)
    arrival = _seconds(table, "TIMESTAMP")
    return request_reading(table, arrival, "ContextTokens", "GeneratedTokens", options, assumed)


READER = Reader(
    "azure-llm",
    "requests",
    "Azure LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens (CSV)",
    _recognizes,
    _read,
)
