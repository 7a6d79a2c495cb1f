"""``burstgpt``: BurstGPT (Wang et al., arXiv 2401.17644), requests to ChatGPT and GPT-4 of one campus.

A request that failed has no tokens of an answer; such rows are left out, and counted.
"""

from __future__ import annotations

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.request_rows import request_reading

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens")


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table, failed = _keep_answered(read_table(data, name, COLUMNS))
    assumed = ["Timestamp is the arrival of the request, in seconds of the local clock"]
    if failed:
        assumed.append(f"{failed} requests without tokens of a prompt or of an answer (failed) are left out")
    arrival = table.numbers("Timestamp")
    return request_reading(table, arrival, "Request tokens", "Response tokens", options, tuple(assumed))


def _keep_answered(table: Table) -> tuple[Table, int]:
    """The requests that were answered, with the models' column as traces name it; how many were not."""
    prompt, output = table.counts("Request tokens", 0), table.counts("Response tokens", 0)
    rows = np.flatnonzero((prompt > 0) & (output > 0)).tolist()
    if not rows:
        raise BadInput("no request was answered", table.name, "rows with tokens of a prompt and an answer")
    columns = {
        "model" if column == "Model" else column: tuple(cells[row] for row in rows)
        for column, cells in table.columns.items()
    }
    return Table(table.name, columns, tuple(table.lines[row] for row in rows)), len(table) - len(rows)


READER = Reader(
    "burstgpt",
    "requests",
    "BurstGPT: Timestamp, Model, Request tokens, Response tokens (CSV)",
    _recognizes,
    _read,
)
