"""``alibaba-pai``: the tables of Alibaba's GPU trace of 2020 (PAI), and the job lists of its simulator.

The trace is several CSV files without header lines. The table of tasks is enough: instances, processors,
memory and parts of GPUs, and when they ran. In an archive with it the table of jobs adds users and times of
submission, that of instances when they really ran, and that of group tags groups, wishes for a type of GPU
and workloads. A job is a gang: the GPU instances of all its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.archive import Member
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_rows import apply_options, implausible
from experiments.readers.pai_jobs import jobs_of_list, jobs_of_tables

JOBS, TASKS, INSTANCES, GROUPS = "jobs", "tasks", "instances", "groups"
#: The columns of each table, in the order of its cells.
TABLES: Mapping[str, tuple[str, ...]] = {
    JOBS: ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    TASKS: (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    INSTANCES: (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status"),
        *("start_time", "end_time", "machine"),
    ),
    GROUPS: ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}
STATUSES = frozenset({"Terminated", "Failed", "Running", "Waiting"})
#: What the simulator's lists have at least.
LIST = ("job_id", "user", "num_inst", "num_cpu", "num_gpu", "submit_time", "duration")


def _kind(head: bytes, name: str) -> str | None:
    """Which of ``TABLES`` a file is: by its header, by where a status stands, or group tags by their name."""
    line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    cells = [cell.strip() for cell in line[:10_000].split(",")]
    for kind, columns in TABLES.items():
        if cells == [*columns]:
            return kind
        if "status" in columns and len(cells) == len(columns) and cells[columns.index("status")] in STATUSES:
            return kind
    return GROUPS if len(cells) == len(TABLES[GROUPS]) and "group_tag" in name else None


def _recognizes(head: bytes, name: str) -> bool:
    return header_of(head).issuperset(LIST) or _kind(head, name) is not None


def _join(members: Sequence[Member], name: str, options: WorkloadOptions) -> Reading:
    """The tables that ``members`` are, each once; files that are only a header line say nothing."""
    kinds = [_kind(member.data[:65536], member.name) for member in members]
    if None in kinds:
        listed = [member for member, kind in zip(members, kinds, strict=True) if kind is None]
        return _read_list(listed[0], len(members), options)
    tables: dict[str, Table] = {}
    for member, kind in zip(members, kinds, strict=True):
        assert kind is not None
        if member.data.strip().count(b"\n") == 0 and header_of(member.data) == set(TABLES[kind]):
            continue
        if kind in tables:
            raise BadInput(f"is a second table of {kind}, after {tables[kind].name}", member.name, "one")
        tables[kind] = read_table(member.data, member.name, TABLES[kind], columns_are=TABLES[kind])
    if TASKS not in tables:
        found = " and ".join(tables) or "header lines"
        raise BadInput(f"has {found} and no table of tasks", name, "pai_task_table: it says who wants GPUs")
    trace, assumed = jobs_of_tables(name, tables[TASKS], *map(tables.get, (JOBS, INSTANCES, GROUPS)))
    return Reading(apply_options(trace, options), assumed, implausible(trace))


def _read_list(member: Member, files: int, options: WorkloadOptions) -> Reading:
    if files > 1:
        raise BadInput(
            f"is a list of jobs among {files} files", member.name, "one list, or the trace's tables"
        )
    trace, assumed = jobs_of_list(read_table(member.data, member.name, LIST))
    return Reading(apply_options(trace, options), assumed, implausible(trace))


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    return _join((Member(name, data),), name, options)


READER = Reader(
    "alibaba-pai",
    "jobs",
    "Alibaba's GPU trace of 2020 (PAI): pai_task_table.csv, or an archive of it with pai_job_table, "
    "pai_instance_table and pai_group_tag_table; also the job lists of its simulator (CSV)",
    _recognizes,
    _read,
    join=_join,
    columns=("tenant", "model", "user", "group", "cpu", "memory", "gpu_share", "gpu_type"),
)
