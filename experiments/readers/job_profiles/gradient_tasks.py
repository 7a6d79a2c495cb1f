"""Gradient tasks of models (CSV, our own layout): ``model, tasks_per_round, sync_seconds``, and a column of
seconds a task for each device type.

An empty cell says that the model does not run on that type; every model runs on some.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import header_of, read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.gradient_tasks import GradientTasks, TaskTimes

COLUMNS = ("model", "tasks_per_round", "sync_seconds")


def _recognizes(members: Sequence[Member]) -> bool:
    return len(members) == 1 and header_of(members[0].data[:10_001]).issuperset(COLUMNS)


def _read(members: Sequence[Member], name: str) -> GradientTasks:
    (member,) = members
    table = read_table(member.data, member.name, COLUMNS)
    types = [column for column in table.columns if column not in COLUMNS]
    if not types:
        raise BadInput("has no column of a device type", f"{member.name}, line 1", "seconds by device type")
    tasks = table.counts("tasks_per_round", high=10**6).tolist()
    sync = table.numbers("sync_seconds", high=1e9).tolist()
    seconds = {kind: table.numbers(kind, low=1e-9, high=1e9, empty=float("nan")) for kind in types}
    models: dict[str, TaskTimes] = {}
    for row, model in enumerate(table.unique("model")):
        times = {kind: float(column[row]) for kind, column in seconds.items() if column[row] > 0}
        if not times:
            raise table.bad("model", row, "runs on no device type", f"seconds on {' or '.join(types)[:200]}")
        models[model] = TaskTimes(tasks[row], sync[row], times)
    return GradientTasks(name, models)


PROFILES = ProfileReader(
    "gradient-tasks",
    "gradient tasks (CSV: model, tasks_per_round, sync_seconds, and seconds a task by device type)",
    _recognizes,
    _read,
)
