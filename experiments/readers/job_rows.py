"""From the columns of a job file to a JobTrace: shared by all readers of job traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reading
from experiments.readers.csv_table import Table
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: A gang larger than any job of the public traces.
MANY_GPUS = 1024
LONG_SECONDS = 90 * 86400.0


@dataclass(frozen=True)
class JobColumns:
    """Where a file keeps what a JobTrace needs; ``None``: the file does not have it."""

    submit: str
    gpus: str
    service: str
    job: str | None = "job_id"
    deadline: str | None = None
    model: str | None = None
    tenant: str | None = None


def job_reading(
    table: Table, columns: JobColumns, options: WorkloadOptions, assumed: tuple[str, ...]
) -> Reading:
    """Check every column, sort by (submit, id), then cut and rescale as ``options`` say."""
    rows = len(table)
    trace = JobTrace.from_columns(
        name=table.name,
        job=table.unique(columns.job) if columns.job else tuple(map(str, range(rows))),
        submit=table.numbers(columns.submit),
        gpus=table.counts(columns.gpus, high=10**6),
        service=table.numbers(columns.service, high=1e12),
        deadline=_deadlines(table, columns),
        model=_names(table, columns.model),
        tenant=_names(table, columns.tenant),
        original=table.columns,
        facts={"jobs": rows},
    )
    return Reading(apply_options(trace, options), assumed, implausible(trace))


def _deadlines(table: Table, columns: JobColumns) -> Floats:
    if columns.deadline is None:
        return np.full(len(table), np.nan)
    return table.numbers(columns.deadline, empty=np.nan)


def _names(table: Table, column: str | None) -> tuple[str, ...]:
    return table.columns[column] if column else ("",) * len(table)


def apply_options(trace: JobTrace, options: WorkloadOptions) -> JobTrace:
    """The first ``limit`` jobs, submitted at ``rate`` per second on average.

    Slack before deadlines is kept.
    """
    if options.limit is not None:
        trace = trace.first(options.limit)
    span = float(trace.submit[-1] - trace.submit[0])
    if options.rate is None or span == 0:
        return trace
    first = trace.submit[0]
    submit = first + (trace.submit - first) * (len(trace) / span / options.rate)
    return replace(trace, submit=submit, deadline=submit + (trace.deadline - trace.submit))


def implausible(trace: JobTrace) -> tuple[str, ...]:
    """What a person should look at before believing a result on this trace."""
    late = trace.deadline < trace.submit
    doubts = (
        (trace.service == 0, "run for 0 seconds"),
        (trace.service > LONG_SECONDS, "run for more than 90 days"),
        (trace.gpus > MANY_GPUS, f"want more than {MANY_GPUS} GPUs"),
        (late, "have a deadline before they are submitted"),
    )
    found = [_doubt(trace, np.flatnonzero(rows), what) for rows, what in doubts if rows.any()]
    if len(trace) > 1 and trace.submit[0] == trace.submit[-1]:
        found.append(f"all {len(trace)} jobs are submitted at the same time")
    return tuple(found)


def _doubt(trace: JobTrace, rows: Ints, what: str) -> str:
    return f"{len(rows)} of {len(trace)} jobs {what} (the first: {trace.job[rows[0]]:.60})"


def merge_jobs(readings: Sequence[tuple[str, Reading]], name: str, options: WorkloadOptions) -> Reading:
    """One trace of several: ids become ``file/id``, and the file's name is the tenant where there is none."""
    parts = [(stem, _trace(reading)) for stem, reading in readings]
    original: Mapping[str, Sequence[Any]] = {
        column: tuple(cell for _, part in parts for cell in part.original[column])
        for column in parts[0][1].original
        if all(column in part.original for _, part in parts)
    }
    trace = JobTrace.from_columns(
        name=name,
        job=tuple(f"{stem}/{job}" for stem, part in parts for job in part.job),
        submit=np.concatenate([part.submit for _, part in parts]),
        gpus=np.concatenate([part.gpus for _, part in parts]),
        service=np.concatenate([part.service for _, part in parts]),
        deadline=np.concatenate([part.deadline for _, part in parts]),
        model=tuple(model for _, part in parts for model in part.model),
        tenant=tuple(tenant or stem for stem, part in parts for tenant in part.tenant),
        original=original,
        facts={"jobs": sum(len(part) for _, part in parts), "files": [stem for stem, _ in parts]},
    )
    assumed = (f"{len(parts)} files merged on one clock, job ids prefixed with the file's name",)
    each = tuple(dict.fromkeys(text for _, reading in readings for text in reading.assumed))
    return Reading(apply_options(trace, options), assumed + each, implausible(trace))


def _trace(reading: Reading) -> JobTrace:
    if not isinstance(reading.value, JobTrace):
        raise BadInput("is not a job trace", type(reading.value).__name__, "job traces")
    return reading.value
