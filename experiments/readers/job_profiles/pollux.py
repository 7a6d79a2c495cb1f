"""Pollux' folder of measurements: for each application a folder with ``placements.csv``, ``scalability.csv``
and ``validation-N.csv`` for each batch size N.

Other files of the folder are passed over.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import Table, read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.training_runs import StepTimes, TrainingRun, TrainingRuns, Validation

TIMES = ("local_bsz", "step_time", "sync_time")
CURVES = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
#: Gradients of sums over large batches are large.
MOST_NOISE = 1e30
_FILE = re.compile(r"([^/]{1,100})/(placements|scalability|validation-([1-9]\d{0,11}))\.csv", re.ASCII)
_PLACEMENT = re.compile(r"[1-9]{1,64}", re.ASCII)
_Key = TypeVar("_Key")


def _recognizes(members: Sequence[Member]) -> bool:
    files = {match[2] for member in members if (match := _match(member))}
    return "placements" in files and any(file.startswith("validation-") for file in files)


def _match(member: Member) -> re.Match[str] | None:
    """Application, file and batch size of a member."""
    parts = member.name.rsplit(": ", 1)[-1].split("/")
    return _FILE.fullmatch("/".join(parts[-2:]))


def _read(members: Sequence[Member], name: str) -> TrainingRuns:
    found: dict[str, dict[str, Member]] = defaultdict(dict)
    for member in members:
        if match := _match(member):
            if match[2] in found[match[1]]:
                raise BadInput("appears twice", member.name, "one file of a kind for each application")
            found[match[1]][match[2]] = member
    return TrainingRuns(name, {each: _application(files, each) for each, files in sorted(found.items())})


def _application(files: Mapping[str, Member], name: str) -> TrainingRun:
    for wanted in ("placements", "scalability"):
        if wanted not in files:
            raise BadInput(f"has no {wanted}.csv", name, "placements.csv, scalability.csv, validation-N.csv")
    validated = {
        int(file.partition("-")[2]): _validation(member)
        for file, member in files.items()
        if file.startswith("validation-")
    }
    if not validated:
        raise BadInput("has no validation-N.csv", name, "one for each batch size")
    return TrainingRun(
        _placed(files["placements"]), _scattered(files["scalability"]), dict(sorted(validated.items()))
    )


def _placed(member: Member) -> Mapping[tuple[int, ...], StepTimes]:
    table = read_table(member.data, member.name, ("placement", *TIMES))
    for row, text in enumerate(table.columns["placement"]):
        if not _PLACEMENT.fullmatch(text):
            raise table.bad(
                "placement", row, "is no placement", "GPUs on each node, a digit from 1 to 9 each"
            )
    return _times(table, (tuple(map(int, text)) for text in table.columns["placement"]))


def _scattered(member: Member) -> Mapping[tuple[int, int], StepTimes]:
    table = read_table(member.data, member.name, ("num_nodes", "num_replicas", *TIMES))
    nodes, gpus = (table.counts(column, high=10**6).tolist() for column in ("num_nodes", "num_replicas"))
    for row, (servers, devices) in enumerate(zip(nodes, gpus, strict=True)):
        if servers > devices:
            raise table.bad("num_nodes", row, f"exceeds {devices} GPUs", "a GPU on each node or more")
    return _times(table, zip(nodes, gpus, strict=True))


def _times(table: Table, keys: Iterable[_Key]) -> dict[_Key, StepTimes]:
    """Step times by key, each by rising batch."""
    batch = table.numbers("local_bsz", low=1, high=2**40)
    step = table.numbers("step_time", low=1e-9, high=1e9)
    sync = table.numbers("sync_time", high=1e9)
    for row in np.flatnonzero(sync > step)[:1]:
        raise table.bad("sync_time", int(row), "exceeds the step", "a part of step_time")
    rows: dict[_Key, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    found = dict[_Key, StepTimes]()
    for key, places in rows.items():
        order = sorted(places, key=batch.__getitem__)
        for before, row in itertools.pairwise(order):
            if batch[before] == batch[row]:
                raise table.bad("local_bsz", row, "appears twice", "one row for each batch of a placement")
        found[key] = StepTimes(batch[order], step[order], sync[order])
    return found


def _validation(member: Member) -> Validation:
    table = read_table(member.data, member.name, CURVES)
    progress = table.numbers("progress")
    for row in np.flatnonzero(np.diff(progress) <= 0)[:1]:
        raise table.bad("progress", int(row) + 1, "does not exceed that before", "rising progress")
    metric = table.numbers("metric", low=-1e15)
    square, variance = (table.numbers(column, high=MOST_NOISE) for column in CURVES[3:])
    return Validation(progress, table.numbers("iteration"), metric, square, variance)


PROFILES = ProfileReader(
    "pollux",
    "Pollux' folder of measurements (by application: placements.csv, scalability.csv, validation-N.csv)",
    _recognizes,
    _read,
)
