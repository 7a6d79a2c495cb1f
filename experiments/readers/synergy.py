"""``synergy``: the job lists that Synergy's simulator replays: id, model, submission, iterations, GPUs.

They have no header line and no durations. How long a job runs follows from the speeds of its model by
processors and memory, which ``options.extra`` names: durations are those on an equal part of the paper's
server (24 processors and 500 GB for 8 GPUs).
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, read_table
from experiments.readers.job_rows import apply_options, implausible, merge_jobs
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds

COLUMNS = ("job_id", "model", "submit", "iterations", "gpus")
#: Processors and bytes of memory for each GPU of the paper's server.
EQUAL_PART = (3.0, 62.5e9)
_ROW = re.compile(rb"\d{1,18},[A-Za-z][\w.-]{0,99},\d{1,15}(\.\d{0,15})?,\d{1,15},\d{1,9}\r?(\n|$)")


def _recognizes(head: bytes, name: str) -> bool:
    return _ROW.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS, columns_are=COLUMNS)
    trace = _with_durations(apply_options(_trace(table), options))
    if isinstance(trace.profiles, ResourceSpeeds):
        told = "durations are those on 3 processors and 62.5 GB for each GPU, by " + trace.profiles.name
    else:
        told = "no durations: iterations alone, without speeds by processors and memory (options.extra)"
    assumed = ("submission is in s", told)
    return Reading(trace, assumed, implausible(trace))


def _trace(table: Table) -> JobTrace:
    rows = len(table)
    for row, model in enumerate(table.columns["model"]):
        if not model:
            raise table.bad("model", row, "is empty", "the name of a model")
    return JobTrace.from_columns(
        name=table.name,
        job=table.unique("job_id"),
        submit=table.numbers("submit"),
        gpus=table.counts("gpus", high=10**6),
        service=np.full(rows, np.nan),
        deadline=np.full(rows, np.nan),
        model=table.columns["model"],
        tenant=("",) * rows,
        traits={"iterations": table.numbers("iterations")},
        original=table.columns,
        facts={"jobs": rows},
    )


def _with_durations(trace: JobTrace) -> JobTrace:
    """The trace with seconds for iterations; NaN where there are no speeds, or none of a job's model."""
    speeds = trace.profiles
    if not isinstance(speeds, ResourceSpeeds):
        return trace
    each = {model: grid.at(*EQUAL_PART) for model, grid in speeds.models.items()}
    speed = np.array([each.get(model, np.nan) for model in trace.model])
    return replace(trace, service=trace.traits["iterations"] / speed)


READER = Reader(
    "synergy",
    "jobs",
    "job lists of Synergy's simulator: id, model, submission, iterations, GPUs, without a header line; "
    "options.extra is its speeds by processors and memory (CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("model", "iterations"),
)
