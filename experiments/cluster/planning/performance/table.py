"""``table``: steps per second by number of GPUs, as ElasticFlow measured them for each model and batch.

A job runs as fast on ``n`` devices as its row says for the largest level that ``n`` holds; devices beyond a
level idle. A row that falls again is capped at its best count: a job given more uses only so many. Where
devices are, and of which type, the tables do not tell.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from experiments.cluster.interface import ClusterView, Gang, Machines, Rate
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import Levels, ThroughputTables

#: Rows that fall, listed by name in what results tell.
LISTED = 10


class TableSpeed:
    """Work in steps. ``BadInput`` names the first job whose model, batch or GPUs the tables lack."""

    name = "table"
    unit = "steps"

    def __init__(self, trace: JobTrace, machines: Machines, tables: ThroughputTables) -> None:
        self.tables = tables
        self._untold_batches = self._untold_steps = 0
        self._rows: list[tuple[str, int]] = [self._row(trace, job) for job in range(len(trace))]
        self._work: list[float] = [self._steps(trace, job) for job in range(len(trace))]

    def _row(self, trace: JobTrace, job: int) -> tuple[str, int]:
        """The model and batch of a job's row."""
        model, batch = trace.model[job], int(trace.traits["batch"][job]) if "batch" in trace.traits else 0
        where = f"{trace.name}, job {trace.job[job]:.60}"
        if model not in self.tables.rows:
            what = f"{self.name} has no model {model!r:.60}" if model else "has no model"
            raise BadInput(what, where, f"one of {', '.join(self.tables.rows)[:200]} ({self.tables.name})")
        rows = self.tables.rows[model]
        if not batch and len(rows) == 1:
            self._untold_batches += 1
            batch = next(iter(rows))
        if batch not in rows:
            what = f"{self.name} has no batch {batch} of model {model}"
            raise BadInput(what, where, f"one of {', '.join(map(str, rows))[:200]} ({self.tables.name})")
        return model, batch

    def _steps(self, trace: JobTrace, job: int) -> float:
        """Steps asked for; where they are not told, those of its time on the GPUs that it asked for."""
        told = float(trace.traits["iterations"][job]) if "iterations" in trace.traits else math.nan
        if not math.isnan(told):
            return told
        self._untold_steps += 1
        wanted = int(trace.gpus[job])
        speed = self.speed(job, wanted)
        if speed is None:
            model, batch = self._rows[job]
            what = f"{self.name} has no throughput of {model} with batch {batch} on {wanted} GPUs"
            raise BadInput(what, f"{trace.name}, job {trace.job[job]:.60}", "steps, or GPUs that it has")
        return float(trace.service[job]) * speed

    def work(self, job: int) -> float:
        return self._work[job]

    def model(self, job: int) -> str:
        """The model whose row a job has."""
        return self._rows[job][0]

    def measured(self, job: int) -> Levels:
        """GPUs and steps per second of a job's row as the table has it."""
        model, batch = self._rows[job]
        return self.tables.rows[model][batch]

    def levels(self, job: int) -> Levels:
        """Those levels of a job's row that are faster than all smaller ones."""
        return self._rising[self._rows[job]]

    def largest(self, job: int) -> int:
        """The count at which a job is fastest."""
        return self.levels(job)[-1][0]

    def speed(self, job: int, gpus: int) -> float | None:
        """Steps per second on so many devices; ``None`` where it needs more."""
        level = self._level(job, gpus)
        return None if level is None else level[1]

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        level = self._level(job, gang.size)
        if level is None:
            model, batch = self._rows[job]
            what = f"{self.name} has no throughput of {model} with batch {batch} on {gang.size} GPUs"
            raise BadInput(what, f"job number {job}", f"{self.measured(job)[0][0]} GPUs or more")
        gpus, speed = level
        return Rate(speed * gang.share, busy=gpus / gang.size)

    def _level(self, job: int, gpus: int) -> tuple[int, float] | None:
        row = self._capped[self._rows[job]]
        place = bisect_right(row, (gpus, math.inf))
        return row[place - 1] if place else None

    @cached_property
    def _capped(self) -> Mapping[tuple[str, int], Levels]:
        """Each row up to its best count."""
        return {
            key: row[: max(range(len(row)), key=lambda place: (row[place][1], -place)) + 1]
            for key, row in self._all_rows.items()
        }

    @cached_property
    def _rising(self) -> Mapping[tuple[str, int], Levels]:
        return {
            key: tuple(
                level for place, level in enumerate(row) if all(level[1] > less for _, less in row[:place])
            )
            for key, row in self._capped.items()
        }

    @cached_property
    def _all_rows(self) -> Mapping[tuple[str, int], Levels]:
        return {
            (model, batch): row for model, rows in self.tables.rows.items() for batch, row in rows.items()
        }

    def describe(self) -> Mapping[str, Any]:
        assumed = ["the same on every type of device and wherever they are"]
        if self._untold_batches:
            assumed.append(f"{self._untold_batches} jobs of untold batch have the only one of their model")
        if self._untold_steps:
            assumed.append(
                f"{self._untold_steps} jobs of untold steps have those of their time on their GPUs"
            )
        return {"table": self.tables.name, "assumed": assumed, "warnings": self._warnings()}

    def _warnings(self) -> list[str]:
        """The rows in use that fall, and at which count they are capped."""
        falling = [
            f"{model} with batch {batch} is capped at {self._capped[model, batch][-1][0]} GPUs"
            for model, batch in sorted(set(self._rows))
            if any(less >= more for (_, less), (_, more) in pairwise(self._all_rows[model, batch]))
        ]
        more = [f"and {len(falling) - LISTED} more rows"] if len(falling) > LISTED else []
        return [f"not monotone: {text}" for text in falling[:LISTED]] + more


def table_of(view: ClusterView) -> TableSpeed:
    """The throughput tables of a run, for a policy that sees ``throughput``."""
    if not isinstance(view.performance, TableSpeed):
        what = f"tells {view.performance.name} speeds, not throughput by GPU count"
        raise BadInput(what, "options.extra", "a throughput folder of ElasticFlow")
    return view.performance
