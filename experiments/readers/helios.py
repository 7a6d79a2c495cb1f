"""``helios``: the job logs of SenseTime's Helios clusters (``cluster_log.csv``), and Philly's in that layout.

A job runs as long as it did there, whatever its end was; the virtual cluster is the tenant. Jobs without GPUs
are left out, and so are those that never ran or had not ended.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_rows import apply_options, implausible, merge_jobs
from experiments.readers.left_out import leave_out, tell
from experiments.readers.timestamps import stamps
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

Bools = npt.NDArray[np.bool_]

COLUMNS = ("job_id", "user", "vc", "gpu_num", "submit_time", "start_time", "end_time")


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    submit, (gpus, untold) = stamps(table, "submit_time"), _gpus(table)
    service = _durations(table)
    kept, left_out = leave_out(
        (
            (untold, "do not tell their GPUs"),
            (gpus == 0, "ask for no GPU"),
            (np.isnan(submit), "have no time of submission"),
            (np.isnan(stamps(table, "start_time")), "never started"),
            (np.isnan(service), "have not ended"),
        ),
        name,
    )
    table.unique("job_id")
    columns = {column: tuple(cells[row] for row in kept.tolist()) for column, cells in table.columns.items()}
    traits = {"user": columns["user"]}
    traits |= {"name": columns["jobname"]} if "jobname" in columns else {}
    trace = JobTrace.from_columns(
        name=name,
        job=columns["job_id"],
        submit=submit[kept] - submit[kept].min(),
        gpus=gpus[kept].astype(np.int64),
        service=service[kept],
        deadline=np.full(len(kept), np.nan),
        model=("",) * len(kept),
        tenant=columns["vc"],
        traits=traits | _processors(table, kept),
        original=columns,
        facts={"jobs": len(kept), "left out": left_out},
    )
    late = int((np.diff(submit[kept]) < 0).sum())
    assumed = (
        "time 0 is the first submission; a job runs from start_time to end_time, however it ended",
        "vc is the tenant; gpu_num and cpu_num are those of all its nodes together",
        *((f"rows were not in the order of submission ({late} go back)",) if late else ()),
        *tell(left_out),
    )
    return Reading(apply_options(trace, options), assumed, implausible(trace))


def _gpus(table: Table) -> tuple[Floats, Bools]:
    """GPUs of each job (0 where they are not told), and where they are not."""
    blank = np.array([cell.lower() in ("", "nan") for cell in table.columns["gpu_num"]])
    told = _without_nan(table, "gpu_num").numbers("gpu_num", high=1e6, empty=0.0)
    for row in np.flatnonzero(told != np.floor(told))[:1]:
        raise table.bad("gpu_num", int(row), "is not a whole number", "a whole number")
    return told, blank


def _without_nan(table: Table, column: str) -> Table:
    cells = tuple("" if cell.lower() == "nan" else cell for cell in table.columns[column])
    return Table(table.name, {**table.columns, column: cells}, table.lines)


def _durations(table: Table) -> Floats:
    """Seconds from start to end; those in ``duration`` where there is a start and no end."""
    start, end = stamps(table, "start_time"), stamps(table, "end_time")
    for row in np.flatnonzero(end < start)[:1]:
        expected = f"not before {table.columns['start_time'][row]}, or nothing"
        raise table.bad("end_time", int(row), "is before the job starts", expected)
    if "duration" not in table.columns:
        return end - start
    told = _without_nan(table, "duration").numbers("duration", high=1e12, empty=np.nan)
    return np.where(np.isnan(end), told, end - start)


def _processors(table: Table, kept: Ints) -> dict[str, Floats]:
    if "cpu_num" not in table.columns:
        return {}
    told = _without_nan(table, "cpu_num").numbers("cpu_num", high=1e6, empty=np.nan)
    return {"cpu": told[kept]}


READER = Reader(
    "helios",
    "jobs",
    "job logs of SenseTime's Helios clusters: job_id, user, vc, gpu_num, cpu_num, submit_time, start_time, "
    "end_time (CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("tenant", "user", "name", "cpu"),
)
