"""``elasticflow``: ElasticFlow's derived traces, with model, iterations, batch size and deadline.

Two spellings exist: ``submission_time, num_iteration, deadline`` in the published traces and
``submit_time, iteration, ddl`` in the artifact. Jobs with 1 in the column ``best_effort``, where it is there,
have no deadline.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_rows import JobColumns, job_reading, merge_jobs

COLUMNS = ("job_id", "num_gpu", "duration", "model_name", "batch_size")
SUBMIT = ("submission_time", "submit_time")
DEADLINE = ("deadline", "ddl")
ITERATIONS = ("num_iteration", "iteration")
BEST_EFFORT = "best_effort"


def _recognizes(head: bytes, name: str) -> bool:
    header = header_of(head)
    return header.issuperset(COLUMNS) and not header.isdisjoint(SUBMIT) and not header.isdisjoint(DEADLINE)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    table = _without_deadline(table, table.either(*DEADLINE))
    iterations = next((name for name in ITERATIONS if name in table.columns), None)
    columns = JobColumns(
        submit=table.either(*SUBMIT),
        gpus="num_gpu",
        service="duration",
        deadline=table.either(*DEADLINE),
        model="model_name",
        traits={"batch": "batch_size"} | ({"iterations": iterations} if iterations else {}),
    )
    assumed: tuple[str, ...] = (
        "duration is the time on num_gpu GPUs without waiting, in s",
        f"{columns.deadline} is a point in time on the clock of {columns.submit}",
    )
    if BEST_EFFORT in table.columns:
        assumed += (f"jobs with {BEST_EFFORT} 1 have no deadline",)
    return job_reading(table, columns, options, assumed)


def _without_deadline(table: Table, deadline: str) -> Table:
    """The table in which best-effort jobs have no deadline."""
    if BEST_EFFORT not in table.columns:
        return table
    without = table.counts(BEST_EFFORT, low=0, high=1)
    cells = table.columns[deadline]
    kept = tuple("" if none else cell for none, cell in zip(without, cells, strict=True))
    return replace(table, columns={**table.columns, deadline: kept})


READER = Reader(
    "elasticflow",
    "jobs",
    "ElasticFlow's derived traces: jobs with model, iterations, batch size, GPUs and deadline (CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("model", "deadline", "batch", "iterations"),
)
