"""From the tables of Alibaba's GPU trace of 2020 to jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.readers.csv_table import Table
from experiments.readers.left_out import leave_out, tell
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Percent of a processor or GPU; a GB of the trace (29.296875 GB are 30,000 MiB).
PERCENT, GB = 100.0, 2**30
MOST_INSTANCES, MOST_GPUS = 10**5, 10**6
UNITS = (
    "plan_cpu and plan_gpu are percent of a processor and of a GPU, plan_mem is in 2**30 bytes, times in s"
)


@dataclass(frozen=True)
class _Tasks:
    """Rows of the table of tasks, with the place in ``jobs`` of each one's job."""

    table: Table
    jobs: tuple[str, ...]
    job: Ints
    gpus: Floats
    instances: Ints

    @classmethod
    def of(cls, table: Table) -> _Tasks:
        places: dict[str, int] = {}
        job = [places.setdefault(name, len(places)) for name in table.columns["job_name"]]
        seen: dict[tuple[int, str], int] = {}
        for row, key in enumerate(zip(job, table.columns["task_name"], strict=True)):
            if key in seen:
                first = table.lines[seen[key]]
                raise table.bad("task_name", row, f"appears twice in its job (first on line {first})", "once")
            seen[key] = row
        told = table.numbers("inst_num", low=1, high=MOST_INSTANCES, empty=1.0)
        for row in np.flatnonzero(told != np.floor(told))[:1]:
            raise table.bad("inst_num", int(row), "is not a whole number", "a whole number")
        gpus = table.numbers("plan_gpu", high=1e6, empty=0.0) / PERCENT
        return cls(table, tuple(places), np.array(job, np.int64), gpus, told.astype(np.int64))

    def sums(self, each: Floats) -> Floats:
        """Of all instances of each job."""
        return np.bincount(self.job, each * self.instances, len(self.jobs)).astype(np.float64)

    def planned(self, column: str) -> Floats:
        return self.sums(self.table.numbers(column, high=1e9, empty=0.0))


def jobs_of_tables(
    name: str, tasks: Table, jobs: Table | None, instances: Table | None, groups: Table | None
) -> tuple[JobTrace, tuple[str, ...]]:
    """The jobs that ran on GPUs, and what was assumed about them."""
    rows = _Tasks.of(tasks)
    devices, share, mixed = _gang(rows)
    begin, end = _spans(rows) if instances is None else _spans_of_instances(rows, instances)
    submit, owner = _submissions(rows, jobs, begin)
    tags = _tags(rows, jobs, groups)
    reasons = (
        (devices == 0, "ask for no GPU"),
        (np.isnan(submit), "have no time of submission"),
        (np.isnan(begin), "never started"),
        (np.isnan(end), "have not ended"),
    )
    kept, left_out = leave_out(reasons, name)
    trace = _trace(
        name,
        kept,
        left_out,
        job=rows.jobs,
        submit=submit,
        gpus=devices,
        service=end - begin,
        user=owner,
        share=share,
        cpu=rows.planned("plan_cpu") / PERCENT,
        memory=rows.planned("plan_mem") * GB,
        tags=tags,
    )
    assumed = _assumed(rows, jobs, instances, groups)
    if count := int(mixed[kept].sum()):
        assumed.append(f"{count} jobs want unlike parts of GPUs: the largest stands for all of theirs")
    return trace, (*assumed, *tell(left_out))


def _assumed(rows: _Tasks, jobs: Table | None, instances: Table | None, groups: Table | None) -> list[str]:
    """What follows from the tables that are there and those that are not."""
    ran = "tasks" if instances is None else "instances"
    found = [
        UNITS,
        f"a job runs from the first start to the last end of its {ran} with GPUs, all of them at once",
    ]
    if jobs is None:
        found.append("no table of jobs: a job is submitted when its first task is launched, by nobody known")
    else:
        found.append("the user is the tenant")
        if count := len(set(jobs.columns["job_name"]) - set(rows.jobs)):
            found.append(f"{count} jobs of the table of jobs have no task, and are left out")
    if instances is not None and (count := int((_tasks_of(rows, instances) < 0).sum())):
        found.append(f"{count} instances are of no task of the table of tasks, and count for nothing")
    if groups is None:
        found.append("no table of group tags: no groups, and no wishes for a type of GPU")
    return found


def jobs_of_list(table: Table) -> tuple[JobTrace, tuple[str, ...]]:
    """The jobs of a list of the trace's simulator, in GPUs and processors of one instance."""
    count = len(table)
    instances = table.counts("num_inst", high=MOST_INSTANCES)
    each = table.numbers("num_gpu", high=1e4, empty=0.0)
    kept, left_out = leave_out(((each == 0, "ask for no GPU"),), table.name)
    words = {name: table.columns.get(name, ("",) * count) for name in ("group", "workload")}
    trace = _trace(
        table.name,
        kept,
        left_out,
        job=table.unique("job_id"),
        submit=table.numbers("submit_time"),
        gpus=instances * _whole(each),
        service=table.numbers("duration", high=1e12),
        user=table.columns["user"],
        share=_share(each),
        cpu=instances * table.numbers("num_cpu", high=1e6, empty=0.0),
        memory=None,
        tags={**words, "gpu_type": ("",) * count},
    )
    assumed = (
        "num_gpu and num_cpu are those of one instance, duration is the time on them without waiting, in s",
        "the user is the tenant; the type of GPU is what a job was given, not what it asked for",
    )
    return trace, (*assumed, *tell(left_out))


def _gang(rows: _Tasks) -> tuple[Ints, Floats, Any]:
    """GPUs, the part of each, and whether tasks of a job want unlike parts."""
    asks = rows.gpus > 0
    devices = rows.sums(np.where(asks, _whole(rows.gpus), 0.0)).astype(np.int64)
    largest, least = np.zeros(len(rows.jobs)), np.ones(len(rows.jobs))
    np.maximum.at(largest, rows.job[asks], _share(rows.gpus)[asks])
    np.minimum.at(least, rows.job[asks], _share(rows.gpus)[asks])
    return devices, np.where(devices > 0, largest, 1.0), (devices > 0) & (largest != least)


def _whole(gpus: Floats) -> Ints:
    """Devices for so many GPUs or parts of one."""
    return np.ceil(gpus - 1e-9).astype(np.int64)


def _share(gpus: Floats) -> Floats:
    return np.where((gpus > 0) & (gpus < 1), gpus, 1.0)


def _times(table: Table, what: str) -> tuple[Floats, Floats]:
    """Starts and ends of a table's rows; NaN where there is none."""
    start, end = table.numbers("start_time", empty=np.nan), table.numbers("end_time", empty=np.nan)
    for row in np.flatnonzero(end < start)[:1]:
        expected = f"at least {start[row]:g}, or nothing"
        raise table.bad("end_time", int(row), f"is before the {what} starts", expected)
    return start, end


def _spans(rows: _Tasks) -> tuple[Floats, Floats]:
    """From the first launch of a task with GPUs to the last end of one, by job."""
    start, end = _times(rows.table, "task")
    return _extent(rows.job, rows.gpus > 0, start, end, len(rows.jobs))


def _spans_of_instances(rows: _Tasks, table: Table) -> tuple[Floats, Floats]:
    start, end = _times(table, "instance")
    places = _tasks_of(rows, table)
    asks = (places >= 0) & (rows.gpus > 0)[places]
    return _extent(rows.job[places], asks, start, end, len(rows.jobs))


def _tasks_of(rows: _Tasks, instances: Table) -> Ints:
    """The row of each instance's task; -1 where the table of tasks lacks it."""
    keys = zip(rows.table.columns["job_name"], rows.table.columns["task_name"], strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    wanted = zip(instances.columns["job_name"], instances.columns["task_name"], strict=True)
    return np.array([row_of.get(key, -1) for key in wanted], np.int64)


def _extent(job: Ints, asks: Any, start: Floats, end: Floats, count: int) -> tuple[Floats, Floats]:
    """The least start and the largest end of the rows that ask for GPUs; NaN where one has no end."""
    begin, until = np.full(count, np.inf), np.full(count, -np.inf)
    started = asks & ~np.isnan(start)
    np.minimum.at(begin, job[started], start[started])
    np.maximum.at(until, job[asks], np.where(np.isnan(end), np.inf, end)[asks])
    return np.where(np.isinf(begin), np.nan, begin), np.where(np.isinf(until), np.nan, until)


def _submissions(rows: _Tasks, jobs: Table | None, begin: Floats) -> tuple[Floats, Sequence[str]]:
    """When each job was submitted, and by whom."""
    if jobs is None:
        return begin, ("",) * len(rows.jobs)
    row_of = {name: row for row, name in enumerate(jobs.unique("job_name"))}
    times, _ = _times(jobs, "job")
    users = jobs.columns["user"]
    places = [row_of.get(name, -1) for name in rows.jobs]
    submit = np.array([times[row] if row >= 0 else np.nan for row in places])
    return submit, tuple(users[row] if row >= 0 else "" for row in places)


def _tags(rows: _Tasks, jobs: Table | None, groups: Table | None) -> Mapping[str, Sequence[str]]:
    """The group, the wish for a type and the workload of each job, joined by the id of the table of jobs."""
    nothing = ("",) * len(rows.jobs)
    if jobs is None or groups is None:
        return {"group": nothing, "gpu_type": nothing, "workload": nothing}
    inst_of = dict(zip(jobs.columns["job_name"], jobs.columns["inst_id"], strict=True))
    row_of = {inst: row for row, inst in enumerate(groups.columns["inst_id"])}
    places = [row_of.get(inst_of.get(name, ""), -1) for name in rows.jobs]
    wanted = {"group": "group", "gpu_type": "gpu_type_spec", "workload": "workload"}
    return {
        ours: tuple(groups.columns[column][row] if row >= 0 else "" for row in places)
        for ours, column in wanted.items()
    }


def _trace(
    name: str,
    kept: Ints,
    left_out: Mapping[str, int],
    *,
    job: Sequence[str],
    submit: Floats,
    gpus: Ints,
    service: Floats,
    user: Sequence[str],
    share: Floats,
    cpu: Floats,
    memory: Floats | None,
    tags: Mapping[str, Sequence[str]],
) -> JobTrace:
    def of(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(words[row] for row in kept.tolist())

    traits = {"user": of(user), "group": of(tags["group"]), "gpu_type": of(tags["gpu_type"])}
    numbers = {"gpu_share": share, "cpu": cpu, **({} if memory is None else {"memory": memory})}
    return JobTrace.from_columns(
        name=name,
        job=of(job),
        submit=submit[kept],
        gpus=gpus[kept],
        service=service[kept],
        deadline=np.full(len(kept), np.nan),
        model=of(tags["workload"]),
        tenant=of(user),
        traits={**traits, **{trait: column[kept] for trait, column in numbers.items()}},
        facts={"jobs": len(kept), "left out": dict(left_out)},
    )
