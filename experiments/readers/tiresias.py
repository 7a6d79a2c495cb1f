"""``tiresias``: the job files of the Tiresias simulator."""

from __future__ import annotations

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import header_of, read_table
from experiments.readers.job_rows import JobColumns, job_reading, merge_jobs

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    columns = JobColumns(
        submit="submit_time",
        gpus="num_gpu",
        service="duration",
        model="model_name",
        traits={"iterations": "iterations"},
    )
    return job_reading(
        table, columns, options, ("duration is the time on num_gpu GPUs without waiting, in s",)
    )


READER = Reader(
    "tiresias",
    "jobs",
    "job files of the Tiresias simulator: job_id, num_gpu, submit_time, iterations, model_name, duration "
    "(CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("model", "iterations"),
)
