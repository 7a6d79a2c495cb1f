"""``jobs-csv``: this lab's own plain job trace: ``submit,gpus,service`` and, optionally,
``job,deadline,model,tenant`` and what else schedulers ask about (``workloads.jobs.TRAITS``).
"""

from __future__ import annotations

from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import header_of, read_table
from experiments.readers.job_rows import JobColumns, job_reading, merge_jobs
from experiments.workloads.jobs import TRAITS

COLUMNS = ("submit", "gpus", "service")
#: Every trait that fits into a cell.
OPTIONAL = tuple(name for name in TRAITS if name != "losses")


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(COLUMNS)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = read_table(data, name, COLUMNS)
    optional = {
        column: column for column in ("job", "deadline", "model", "tenant") if column in table.columns
    }
    traits = {name: name for name in OPTIONAL if name in table.columns}
    columns = JobColumns("submit", "gpus", "service", **{"job": None, **optional}, traits=traits)
    numbered = () if columns.job else ("jobs are numbered by their row: the file has no column job",)
    return job_reading(table, columns, options, numbered)


READER = Reader(
    "jobs-csv",
    "jobs",
    "a plain job trace: submit, gpus, service (s); optional job, deadline (s), model, tenant, cpu, memory "
    "(bytes), gpu_share, gpu_type, batch, iterations, user, group, class, priority ... (CSV)",
    _recognizes,
    _read,
    merge_jobs,
    columns=("deadline", "model", "tenant", *OPTIONAL),
)
