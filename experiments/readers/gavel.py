"""``gavel``: the traces of Gavel's simulator, tab-separated without a header.

The later form has ten columns; that of the traces made from Philly's virtual clusters has seven, without
working directory, weight and deadline. Both count work in steps: how long a job runs follows from the table
of speeds that ``options.extra`` names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import MAX_BYTES, MAX_ROWS, Table
from experiments.readers.job_rows import apply_options, implausible, merge_jobs
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds
from experiments.workloads.step import Floats

#: The columns of both forms. ``slo`` is the time that a job may take over the time that it takes (below 0:
#: no deadline).
TEN = (
    *("model", "command", "directory", "steps_argument", "needs_data"),
    *("steps", "gpus", "weight", "slo", "arrival"),
)
SEVEN = ("model", "command", "steps_argument", "needs_data", "steps", "arrival", "gpus")
FORMS = {len(TEN): TEN, len(SEVEN): SEVEN}
NUMBERS = ("needs_data", "steps", "arrival", "gpus", "weight", "slo")
_BATCH = re.compile(r"\(batch size (\d{1,9})\)", re.ASCII)
_NUMBER = re.compile(rb"-?\d{1,30}(\.\d{0,30})?")


def _recognizes(head: bytes, name: str) -> bool:
    cells = head.split(b"\n", 1)[0].rstrip(b"\r").split(b"\t")
    form = FORMS.get(len(cells), ())
    numbers = [cell for column, cell in zip(form, cells, strict=False) if column in NUMBERS]
    return bool(numbers) and all(_NUMBER.fullmatch(cell.strip()) for cell in numbers)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    table = _table(data, name)
    rows = len(table)
    weights = table.numbers("weight", low=1e-9, high=1e9) if "weight" in table.columns else np.ones(rows)
    trace = JobTrace.from_columns(
        name=name,
        job=tuple(map(str, range(rows))),
        submit=table.numbers("arrival"),
        gpus=table.counts("gpus", high=10**6),
        service=np.zeros(rows),
        deadline=np.full(rows, np.nan),
        model=table.columns["model"],
        tenant=("",) * rows,
        traits={
            "iterations": table.numbers("steps"),
            "batch": np.array([batch_of(model) for model in table.columns["model"]]),
            "weight": weights,
        },
        original=table.columns,
        facts={"jobs": rows},
    )
    trace = with_durations(apply_options(trace, options))
    assumed = (
        "jobs are numbered in the order of rows",
        *_about_durations(trace),
        *(("no weights and no deadlines in this form",) if "slo" not in table.columns else ()),
    )
    return Reading(trace, assumed, (*implausible(trace), *_unknown(trace)))


def _about_durations(trace: JobTrace) -> tuple[str, ...]:
    if trace.profiles is None:
        return ("no durations: steps alone, without a table of speeds (options.extra)",)
    kinds = trace.facts["durations on"]
    return (f"durations are steps over the speed on {kinds} of {trace.profiles.name}, alone on one node",)


def _unknown(trace: JobTrace) -> tuple[str, ...]:
    """What the table of speeds lacks: such jobs have no durations, and no run can carry them out."""
    rows = np.flatnonzero(np.isnan(trace.service))
    if trace.profiles is None or not len(rows):
        return ()
    first = int(rows[0])
    what = f"{trace.model[first]:.60} on {trace.gpus[first]} devices"
    return (
        f"{len(rows)} of {len(trace)} jobs train what {trace.profiles.name} lacks "
        f"(the first: job {trace.job[first]}, {what})",
    )


def batch_of(model: str) -> int:
    """The batch size in a model's name; 0 where it has none."""
    found = _BATCH.search(model)
    return int(found[1]) if found else 0


def with_durations(trace: JobTrace) -> JobTrace:
    """The trace with seconds for steps, and deadlines where a job may take so many times that long.

    NaN where there is no table of speeds, or it lacks a job's model.
    """
    speeds = trace.profiles
    service = np.full(len(trace), np.nan)
    if speeds is None:
        return replace(trace, service=service)
    if not isinstance(speeds, DeviceSpeeds):
        raise BadInput("is no table of speeds by device type", trace.name, "simulation_throughputs.json")
    steps, kinds, known = trace.traits["iterations"], set[str](), speeds.variants
    for job, variant in enumerate(zip(trace.model, trace.gpus.tolist(), strict=True)):
        kind, speed = speeds.reference(variant) if variant in known else ("", 0.0)
        if speed > 0:
            kinds.add(kind)
            service[job] = steps[job] / speed
    facts = {**trace.facts, "durations on": " or ".join(sorted(kinds)) or "no type"}
    return replace(trace, service=service, deadline=_deadlines(trace, service), facts=facts)


def _deadlines(trace: JobTrace, service: Floats) -> Floats:
    """Deadlines of jobs that may take so many times as long as they do."""
    if "slo" not in trace.original:
        return trace.deadline
    allowed = np.array([float(cell) for cell in trace.original["slo"]])
    return np.where(allowed > 0, trace.submit + allowed * service, np.nan)


def _table(data: bytes, name: str) -> Table:
    if len(data) > MAX_BYTES:
        raise BadInput(f"{len(data)} bytes", name, f"at most {MAX_BYTES}")
    rows, lines = _rows(data, name)
    if not rows:
        raise BadInput("the file is empty", name, "rows of seven or ten cells")
    form = FORMS[len(rows[0])]
    columns = {column: tuple(row[place] for row in rows) for place, column in enumerate(form)}
    table = Table(name, columns, tuple(lines))
    if "slo" in columns:
        table.numbers("slo", low=-1e9, high=1e9)
    for row, model in enumerate(columns["model"]):
        if not model:
            raise table.bad("model", row, "is empty", "a model of the table of speeds")
    return table


def _rows(data: bytes, name: str) -> tuple[list[Sequence[str]], list[int]]:
    """All rows of cells, and the line of each."""
    rows, lines = list[Sequence[str]](), list[int]()
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        where = f"{name}, line {number}"
        try:
            text = line.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise BadInput(f"byte 0x{line[error.start]:02x} is not UTF-8 text", where, "UTF-8 text") from None
        if "\0" in text:
            raise BadInput("a NUL character", where, "plain text")
        if not text.strip():
            continue
        cells = [cell.strip() for cell in text.split("\t")]
        wanted = len(rows[0]) if rows else None
        if len(cells) != wanted if wanted else len(cells) not in FORMS:
            expected = f"{wanted} as in the first row" if wanted else "seven or ten"
            raise BadInput(f"{len(cells)} cells between tabs", where, expected)
        rows.append(cells)
        lines.append(number)
        if len(rows) > MAX_ROWS:
            raise BadInput("too many rows", where, f"at most {MAX_ROWS}")
    return rows, lines


READER = Reader(
    "gavel",
    "jobs",
    "traces of Gavel's simulator: models with their steps and GPUs, of ten or seven columns between tabs; "
    "options.extra is its table of speeds",
    _recognizes,
    _read,
    merge_jobs,
    columns=("model", "deadline", "batch", "iterations", "weight"),
)
