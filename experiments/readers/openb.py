"""``openb``: pods of Alibaba's openb traces (fractions of GPUs in thousandths, processors and memory)."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_rows import apply_options, implausible, merge_jobs
from experiments.workloads.jobs import JobTrace
from experiments.workloads.step import Floats

COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time")
#: Seconds that a pod is said to run where its file has no times.
UNTOLD = 3600.0


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    submit, service, assumed = _times(table)
    pods = len(table)
    trace = JobTrace.from_columns(
        name=table.name,
        job=table.unique("name"),
        submit=submit,
        gpus=table.counts("num_gpu", low=0, high=4096),
        service=service,
        deadline=np.full(pods, np.nan),
        model=("",) * pods,
        tenant=table.columns.get("qos", ("",) * pods),
        traits=_requests(table),
        original=table.columns,
        facts={"jobs": pods},
    )
    units = "cpu_milli and gpu_milli are thousandths, memory_mib is 2**20 bytes; qos is the tenant"
    return Reading(apply_options(trace, options), (units, *assumed), implausible(trace))


def _requests(table: Table) -> dict[str, Any]:
    """What pods ask for; one without GPUs has no share of any."""
    gpus = table.counts("num_gpu", low=0, high=4096)
    milli = table.counts("gpu_milli", low=0, high=1000)
    for row in np.flatnonzero((gpus > 0) & (milli == 0))[:1]:
        raise table.bad("gpu_milli", int(row), "is no part of a GPU", "1 to 1000 where num_gpu is above 0")
    return {
        "gpu_share": np.where(gpus > 0, milli, 1000) / 1000,
        "cpu": table.numbers("cpu_milli", high=1e9) / 1000,
        "memory": table.numbers("memory_mib", high=1e12) * 2**20,
        "gpu_type": table.columns.get("gpu_spec", ("",) * len(table)),
    }


def _times(table: Table) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Submission and seconds of running, and what was assumed about them."""
    if not set(TIMES) <= table.columns.keys():
        text = f"the file has no times: all pods come at 0 s and run {UNTOLD:g} s"
        return np.zeros(len(table)), np.full(len(table), UNTOLD), (text,)
    submit = table.numbers("creation_time")
    begin = submit
    if "scheduled_time" in table.columns:
        told = table.numbers("scheduled_time", empty=np.nan)
        begin = np.where(np.isnan(told), submit, told)
    end = table.numbers("deletion_time", empty=np.nan)
    open_ended = np.isnan(end)
    end = np.where(open_ended, max(np.nanmax(end, initial=0.0), begin.max()), end)
    for row in np.flatnonzero(end < begin)[:1]:
        raise table.bad("deletion_time", int(row), "is before the pod starts", f"at least {begin[row]:g}")
    assumed = ["a pod runs from scheduled_time (creation_time where it has none) to deletion_time, in s"]
    if open_ended.any():
        assumed.append(f"{int(open_ended.sum())} pods without an end run until the last end in the file")
    return submit, end - begin, tuple(assumed)


READER = Reader(
    "openb",
    "jobs",
    "pods of Alibaba's openb traces: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, times (CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("tenant", "gpu_share", "cpu", "memory", "gpu_type"),
)
