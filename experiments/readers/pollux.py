"""``pollux``: the workloads of Pollux' simulator: which application trains when, on how many GPUs, at which
batch size.

A job trains its application to the end of its validation curve. How long that takes is not in the file: it
follows from profiles of the application, and is not told (NaN) here.
"""

from __future__ import annotations

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_rows import apply_options, implausible, merge_jobs
from experiments.workloads.jobs import JobTrace

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    trace = apply_options(_trace(read_table(data, name, COLUMNS)), options)
    assumed = (
        "num_replicas is the number of GPUs wanted, one for each replica",
        "batch_size is that of a step over all GPUs",
        "no durations: a job trains its application to its end",
    )
    return Reading(trace, assumed, implausible(trace))


def _trace(table: Table) -> JobTrace:
    rows = len(table)
    return JobTrace.from_columns(
        name=table.name,
        job=table.unique("name"),
        submit=table.numbers("time"),
        gpus=table.counts("num_replicas", high=10**6),
        service=np.full(rows, np.nan),
        deadline=np.full(rows, np.nan),
        model=_applications(table),
        tenant=("",) * rows,
        traits={"batch": table.counts("batch_size", high=2**40).astype(float)},
        original=table.columns,
        facts={"jobs": rows},
    )


def _applications(table: Table) -> tuple[str, ...]:
    names = table.columns["application"]
    for row, application in enumerate(names):
        if not application:
            raise table.bad("application", row, "is empty", "the name of an application")
    return names


READER = Reader(
    "pollux",
    "jobs",
    "workloads of Pollux' simulator: name, time, application, num_replicas, batch_size (CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("model", "batch"),
)
