"""``elasticflow-raw``: the ten clusters' job logs of the ElasticFlow traces (job, submission, duration,
GPUs).
"""

from __future__ import annotations

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import header_of, read_table
from experiments.readers.job_rows import JobColumns, job_reading, merge_jobs

COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")
DERIVED = {"deadline", "num_iteration", "model_name"}


def _recognizes(head: bytes, name: str) -> bool:
    header = header_of(head)
    return header.issuperset(COLUMNS) and not header & DERIVED


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    columns = JobColumns(submit="submission_time", gpus="num_gpu", service="duration")
    return job_reading(
        table, columns, options, ("duration is the time on num_gpu GPUs without waiting, in s",)
    )


READER = Reader(
    "elasticflow-raw",
    "jobs",
    "job logs of the ElasticFlow traces: job_id, submission_time, duration, num_gpu (CSV, or all clusters "
    "in a tar)",
    _recognizes,
    _read,
    merge_jobs,
)
