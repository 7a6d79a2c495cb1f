"""``tvm-log``: what TVM's tuners measured, one JSON record a line: AutoTVM's (0.1, 0.2) and Ansor's (v0.1 to
v0.6).

AutoTVM names its knobs (``[["tile_x", "sp", [-1, 64, 2]], ...]``). Ansor writes the steps that made the
schedule; a knob here is what can differ between two schedules of a task: the sketch (kinds and places of the
steps), the lengths of each split, the unroll limit, and the numbers of every other step.

A failed record holds a placeholder for a time (1e9 or 1e10): only error number 0 has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.tvm_records import Record, record_of
from experiments.workloads.tuning_log import LoggedKnob, LoggedTask, TuningLog, Value

MOST_RECORDS = 1_000_000
MOST_TASKS = 10_000
FIRST_LINE = re.compile(rb'\s*\{\s*"(i|input)"\s*:\s*\[')


def _recognizes(head: bytes, name: str) -> bool:
    first = head.lstrip().split(b"\n", 1)[0]
    return FIRST_LINE.match(first) is not None and re.search(rb'"(r|result)"\s*:', first) is not None


@dataclass
class _Gathered:
    """Records of one task so far and where they stand."""

    first: Record
    records: list[Record] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    tasks: dict[str, _Gathered] = {}
    tuner = ""
    for line, record in _records(data, name, options.limit or MOST_RECORDS):
        place = f"{name}: line {line}"
        if tuner not in ("", record.tuner):
            raise BadInput(f"a record of {record.tuner} among those of {tuner}", place, "one tuner's records")
        tuner = record.tuner
        gathered = tasks.setdefault(record.task, _Gathered(record))
        gathered.records.append(record)
        gathered.lines.append(line)
        if len(tasks) > MOST_TASKS:
            raise BadInput(f"more than {MOST_TASKS} tasks", place, "fewer tasks")
    if not tasks:
        raise BadInput("holds no record", name, "one JSON record a line")
    log = TuningLog(name, tuner, tuple(map(_task, tasks.values())))
    return Reading(log, (), _warnings(log))


def _records(data: bytes, name: str, most: int) -> Iterator[tuple[int, Record]]:
    count = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        if count == MOST_RECORDS:
            raise BadInput(f"more than {MOST_RECORDS} records", name, "a shorter log")
        if count == most:
            return
        count += 1
        place = f"{name}: line {number}"
        yield number, record_of(jsonio.loads(line, place), place)


def _task(gathered: _Gathered) -> LoggedTask:
    configs = [record.config for record in gathered.records]
    names = dict.fromkeys(name for config in configs for name in config)
    values: dict[str, dict[Value, int]] = {name: {} for name in names}
    digits = np.empty((len(configs), len(names)), dtype=np.int64)
    for row, config in enumerate(configs):
        for column, name in enumerate(names):
            known = values[name]
            digits[row, column] = known.setdefault(config.get(name), len(known))
    first, records = gathered.first, gathered.records
    return LoggedTask(
        name=first.shown,
        operator=first.operator,
        target=first.target,
        knobs=tuple(LoggedKnob(name, tuple(known)) for name, known in values.items()),
        digits=digits,
        seconds=np.array([record.seconds for record in records]),
        error=np.array([record.error for record in records], dtype=np.int64),
        spent=np.array([record.spent for record in records]),
        line=np.array(gathered.lines, dtype=np.int64),
        flops=first.flops,
    )


def _warnings(log: TuningLog) -> tuple[str, ...]:
    found = [f"task {task.name}: no record is valid" for task in log.tasks if not task.valid]
    twice = sum(len(task) - len(np.unique(task.digits, axis=0)) for task in log.tasks)
    if twice:
        found.append(f"{twice} records repeat a configuration: a replay takes the mean of their valid times")
    slow = sum(int((task.seconds > 3600).sum()) for task in log.tasks)
    if slow:
        found.append(f"{slow} records say that one call takes more than an hour")
    return tuple(found)


READER = Reader(
    "tvm-log",
    "tuning",
    "measurements of TVM's tuners AutoTVM and Ansor: configuration and time or error (JSON, one record a "
    "line)",
    _recognizes,
    _read,
)
