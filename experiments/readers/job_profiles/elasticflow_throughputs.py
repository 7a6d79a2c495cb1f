"""ElasticFlow's throughput folders: one CSV for each model, a row for each global batch, a column for each
number of GPUs, steps per second in the cells.

A cell that is empty, ``nan`` or 0 says that the model does not run on so many GPUs; every row has some that
it runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.throughput_table import Levels, ThroughputTables

BATCH = "global_batch_size"
#: Columns larger than any cluster.
MOST_GPUS = 10**6


def _recognizes(members: Sequence[Member]) -> bool:
    return any(BATCH in header_of(member.data[:10_001]) for member in members)


def _read(members: Sequence[Member], name: str) -> ThroughputTables:
    rows: dict[str, dict[int, Levels]] = {}
    files: dict[str, str] = {}
    left_out = 0
    for member in members:
        if not member.name.lower().endswith(".csv"):
            continue
        if member.stem in files:
            raise BadInput(
                f"model {member.stem!r:.60} has another file, {files[member.stem]:.60}",
                member.name,
                "one file for each model",
            )
        files[member.stem] = member.name
        rows[member.stem], empty = _read_model(member)
        left_out += empty
    if not rows:
        raise BadInput("holds no CSV file", name, "one for each model")
    return ThroughputTables(name, rows, left_out, files)


def _read_model(member: Member) -> tuple[dict[int, Levels], int]:
    """The rows of one model, and how many cells have no throughput."""
    table = _without_nan(read_table(member.data, member.name, (BATCH,)))
    batches = table.counts(BATCH, high=2**40).tolist()
    columns = sorted((_gpus(table, column), column) for column in table.columns if column != BATCH)
    speeds = [(gpus, table.numbers(column, high=1e12, empty=0.0)) for gpus, column in columns]
    rows: dict[int, Levels] = {}
    for row, batch in enumerate(batches):
        if batch in rows:
            raise table.bad(BATCH, row, "appears twice", "one row for each batch")
        rows[batch] = tuple((gpus, float(speed[row])) for gpus, speed in speeds if speed[row] > 0)
        if not rows[batch]:
            raise table.bad(BATCH, row, "runs on no number of GPUs", "a throughput in some column")
    return rows, len(batches) * len(speeds) - sum(map(len, rows.values()))


def _without_nan(table: Table) -> Table:
    """The table with ``nan`` cells empty."""
    blank = {
        column: tuple("" if cell.lower() == "nan" else cell for cell in cells)
        for column, cells in table.columns.items()
    }
    return replace(table, columns=blank)


def _gpus(table: Table, column: str) -> int:
    if not (column.isascii() and column.isdigit() and 1 <= int(column[:12]) <= MOST_GPUS):
        raise BadInput(
            f"column {column!r:.60} is no number of GPUs",
            f"{table.name}, line 1",
            f"{BATCH} and whole numbers from 1 to {MOST_GPUS}",
        )
    return int(column)


PROFILES = ProfileReader(
    "elasticflow-throughputs",
    f"ElasticFlow's throughput folder (a CSV for each model: {BATCH}, then steps/s by number of GPUs)",
    _recognizes,
    _read,
)
