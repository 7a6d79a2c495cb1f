"""Speeds by processors and host memory, in two layouts: the lab's own (CSV), and the model files of Synergy's
simulator.

A row of the CSV is ``model, cpus, memory, steps_per_second``: what a model does with so many processors and
bytes of host memory for each of its GPUs. Each model has every pair of its counts of both. ``dataset`` and
``step_bytes`` may be there too. Synergy's files are Python: a class of each model, of which ``iter_time``
(seconds of a step on 3 processors and 62.5 GB) and the table ``tput`` of speeds relative to that are read
from the text; nothing is run. Of a model measured on several numbers of GPUs the file of one counts, as in
the simulator.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import Table, header_of, read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds, SpeedGrid
from experiments.workloads.step import Floats

COLUMNS = ("model", "cpus", "memory", "steps_per_second")
#: The counts of processors and GB that the rows and columns of Synergy's tables are for.
SYNERGY_CPUS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 12.0, 24.0)
SYNERGY_MEMORY = tuple(gigabytes * 1e9 for gigabytes in (20.83, 62.5, 125.0, 187.5, 250.0))
#: Bytes of a model's file, and a number in it.
MOST_BYTES, MOST = 1 << 20, 1e12
_CLASS, _SUFFIX = b"(ModelStats)", "_1"


def _recognizes(members: Sequence[Member]) -> bool:
    is_csv = len(members) == 1 and header_of(members[0].data[:10_001]).issuperset(COLUMNS)
    return is_csv or any(_CLASS in member.data for member in members)


def _read(members: Sequence[Member], name: str) -> ResourceSpeeds:
    if any(_CLASS in member.data for member in members):
        return ResourceSpeeds(name, _read_classes(members, name))
    (member,) = members
    table = read_table(member.data, member.name, COLUMNS)
    rows: dict[str, list[int]] = {}
    for row, model in enumerate(table.columns["model"]):
        if not model:
            raise table.bad("model", row, "is empty", "the name of a model")
        rows.setdefault(model, []).append(row)
    return ResourceSpeeds(name, {model: _grid(table, places) for model, places in rows.items()})


def _grid(table: Table, rows: Sequence[int]) -> SpeedGrid:
    cpus = table.numbers("cpus", low=1e-3, high=1e6)
    memory = table.numbers("memory", low=1.0, high=1e18)
    speed = table.numbers("steps_per_second", low=1e-12, high=1e12)
    found: dict[tuple[float, float], float] = {}
    for row in rows:
        if (place := (float(cpus[row]), float(memory[row]))) in found:
            raise table.bad(
                "memory", row, f"appears twice with {place[0]:g} cpus of its model", "each pair once"
            )
        found[place] = float(speed[row])
    counts, sizes = (tuple(sorted({place[axis] for place in found})) for axis in (0, 1))
    for count in counts:
        for size in sizes:
            if (count, size) not in found:
                what = f"has no speed on {count:g} cpus and {size:g} bytes"
                raise table.bad("model", rows[0], what, "every pair of the cpus and the memory of its rows")
    values = np.array([[found[count, size] for size in sizes] for count in counts])
    more = [_told(table, column, rows[0]) for column in ("dataset", "step_bytes")]
    return _rising(counts, sizes, values, *more)


def _told(table: Table, column: str, row: int) -> float:
    """What the first row of a model says in a column that may be missing."""
    if column not in table.columns:
        return np.nan
    return float(table.numbers(column, low=1.0, high=1e18, empty=np.nan)[row])


def _rising(
    cpus: tuple[float, ...],
    memory: tuple[float, ...],
    speed: Floats,
    dataset: float = np.nan,
    step_bytes: float = np.nan,
) -> SpeedGrid:
    """More is never slower: a measurement that falls is taken for what less gave."""
    risen = np.maximum.accumulate(np.maximum.accumulate(speed, axis=0), axis=1)
    return SpeedGrid(cpus, memory, risen, dataset, step_bytes, bool((risen != speed).any()))


def _read_classes(members: Sequence[Member], name: str) -> dict[str, SpeedGrid]:
    models: dict[str, SpeedGrid] = {}
    for member in members:
        if not (member.name.endswith(".py") and member.stem.endswith(_SUFFIX) and _CLASS in member.data):
            continue
        step, table = _class_of(member)
        speed = np.array(table, np.float64) / step
        if speed.shape != (len(SYNERGY_CPUS), len(SYNERGY_MEMORY)) or not (speed > 0).all():
            expected = f"{len(SYNERGY_CPUS)} rows of {len(SYNERGY_MEMORY)} numbers above 0"
            raise BadInput("tput has another shape, or holds 0", member.name, expected)
        models[member.stem.removesuffix(_SUFFIX)] = _rising(SYNERGY_CPUS, SYNERGY_MEMORY, speed)
    if not models:
        raise BadInput("has no model of one GPU", name, "files as alexnet_1.py")
    return models


def _class_of(member: Member) -> tuple[float, list[list[float]]]:
    """``iter_time`` and ``tput`` as their last assignments have them."""
    if len(member.data) > MOST_BYTES:
        raise BadInput(f"{len(member.data)} bytes", member.name, f"at most {MOST_BYTES}")
    try:
        tree = ast.parse(member.data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"is not Python: {error}"[:200], member.name, "a model of Synergy") from None
    found: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            value = node.value
            inner = value.args[0] if isinstance(value, ast.Call) and value.args else value
            try:
                found[node.targets[0].attr] = ast.literal_eval(inner)
            except (ValueError, TypeError):
                continue
    step, table = found.get("iter_time"), found.get("tput")
    if not _is_number(step) or not step > 0:
        raise BadInput(f"iter_time is {step!r:.40}", member.name, "seconds of a step, above 0")
    if not _is_table(table):
        raise BadInput("tput is no table of numbers", member.name, "rows of numbers")
    return float(step), table  # type: ignore[return-value]


def _is_table(value: object) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(row, list) and len(row) == len(value[0]) for row in value)
        and all(_is_number(cell) for row in value for cell in row)
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


PROFILES = ProfileReader(
    "resource-speeds",
    "speeds by processors and memory (CSV: model, cpus, memory, steps_per_second), or Synergy's model files",
    _recognizes,
    _read,
)
