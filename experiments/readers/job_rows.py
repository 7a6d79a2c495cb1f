"""From the columns of a job file to a JobTrace: shared by all readers of job traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reading
from experiments.readers.csv_table import Table
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: A gang larger than any job of the public traces.
MANY_GPUS = 1024
LONG_SECONDS = 90 * 86400.0


@dataclass(frozen=True)
class JobColumns:
    """Where a file keeps what a JobTrace needs; ``None``: the file does not have it.

    ``traits`` names the file's column of each of ``workloads.jobs.TRAITS`` that it has.
    """

    submit: str
    gpus: str
    service: str
    job: str | None = "job_id"
    deadline: str | None = None
    model: str | None = None
    tenant: str | None = None
    traits: Mapping[str, str] = field(default_factory=dict)


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
        traits={trait: _trait(table, trait, column) for trait, column in columns.traits.items()},
        original=table.columns,
        facts={"jobs": rows},
    )
    return Reading(apply_options(trace, options), assumed, implausible(trace))


def _deadlines(table: Table, columns: JobColumns) -> Floats:
    if columns.deadline is None:
        return np.full(len(table), np.nan)
    return table.numbers(columns.deadline, empty=np.nan)


#: Traits that are numbers, with the least and the most that they may be; all others are words.
NUMBERS: Mapping[str, tuple[float, float]] = {
    "batch": (0, 2**40),
    "iterations": (0, 1e15),
    "epochs": (0, 1e9),
    "cpu": (0, 1e6),
    "memory": (0, 1e18),
    "gpu_share": (1e-6, 1),
    "priority": (-1e9, 1e9),
    "utilization": (1e-6, 1),
    "weight": (1e-9, 1e9),
}


def _trait(table: Table, trait: str, column: str) -> Any:
    """A column of numbers or of words; numbers may be missing."""
    if trait not in NUMBERS:
        return table.columns[column]
    low, high = NUMBERS[trait]
    usual = 1.0 if trait in ("gpu_share", "utilization", "weight") else 0.0 if trait == "batch" else np.nan
    return table.numbers(column, low=low, high=high, empty=usual)


def _names(table: Table, column: str | None) -> tuple[str, ...]:
    return table.columns[column] if column else ("",) * len(table)


def apply_options(trace: JobTrace, options: WorkloadOptions) -> JobTrace:
    """The first ``limit`` jobs, submitted at ``rate`` per second on average, slack before deadlines kept.

    ``extra`` is read for how fast their models run, ``window`` for those that count.
    """
    if options.slo_scale is not None:
        raise BadInput("jobs have deadlines and no objectives", "options.slo_scale", "it left out")
    if options.limit is not None:
        trace = trace.first(options.limit)
    if options.window is not None:
        trace = replace(trace, window=_window(options.window, len(trace)))
    if options.extra is not None:
        trace = replace(trace, profiles=open_profiles(Path(options.extra)))
    span = float(trace.submit[-1] - trace.submit[0])
    if options.rate is None or span == 0:
        return trace
    first = trace.submit[0]
    submit = first + (trace.submit - first) * (len(trace) / span / options.rate)
    return replace(trace, submit=submit, deadline=submit + (trace.deadline - trace.submit))


def _window(text: str, jobs: int) -> tuple[int, int]:
    begin, colon, end = text.partition(":")
    if not (colon and begin.isascii() and begin.isdigit() and end.isascii() and end.isdigit()):
        raise BadInput(
            f"{text!r:.40} is not a window", "options.window", "two whole numbers, as in 4000:5000"
        )
    first, last = int(begin[:12]), int(end[:12])
    if not first < last <= jobs:
        raise BadInput(f"{text} is no part of {jobs} jobs", "options.window", f"places from 0 to {jobs}")
    return first, last


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
        traits={name: _joined([part.traits[name] for _, part in parts]) for name in _shared_traits(parts)},
        original=original,
        facts={
            "jobs": sum(len(part) for _, part in parts),
            "files": [stem for stem, _ in parts],
            "left out": dict(sum((Counter(part.facts.get("left out")) for _, part in parts), Counter())),
        },
    )
    assumed = (f"{len(parts)} files merged on one clock, job ids prefixed with the file's name",)
    each = tuple(dict.fromkeys(text for _, reading in readings for text in reading.assumed))
    return Reading(apply_options(trace, options), assumed + each, implausible(trace))


def _shared_traits(parts: Sequence[tuple[str, JobTrace]]) -> list[str]:
    return [name for name in parts[0][1].traits if all(name in part.traits for _, part in parts)]


def _joined(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return tuple(cell for column in columns for cell in column)


def _trace(reading: Reading) -> JobTrace:
    if not isinstance(reading.value, JobTrace):
        raise BadInput("is not a job trace", type(reading.value).__name__, "job traces")
    return reading.value
