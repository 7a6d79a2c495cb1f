"""From columns of a request file to a RequestTrace: shared by all readers of serving traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reading
from experiments.readers.csv_table import Table
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.ragged import Ints
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats

#: Longer than any context of the public traces.
MANY_TOKENS = 200_000
#: Seconds of the tightest objective that a file may tell.
LEAST_SLO = 1e-9


def request_reading(
    table: Table,
    arrival: Floats,
    prompt: str,
    output: str,
    options: WorkloadOptions,
    assumed: tuple[str, ...],
) -> Reading:
    """Sort by arrival (ties in file order), start the clock at the first request, then cut and rescale.

    ``arrival`` in seconds on any clock; ``prompt`` and ``output`` name the token columns.
    """
    order = np.argsort(arrival, kind="stable")
    slo = table.numbers("slo", LEAST_SLO, empty=np.nan)[order] if "slo" in table.columns else None
    model = table.columns.get("model", ("",) * len(table))
    trace = RequestTrace(
        name=table.name,
        arrival=(arrival - arrival.min())[order],
        prompt=table.counts(prompt)[order],
        output=table.counts(output)[order],
        model=_pick(model, order),
        original={name: _pick(cells, order) for name, cells in table.columns.items()},
        facts={"requests": len(table), **_sessions(table)},
        slo=slo,
    )
    return Reading(apply_options(trace, options), assumed, implausible(trace))


def _sessions(table: Table) -> dict[str, int]:
    told = set(table.columns.get("session", ())) - {""}
    return {"sessions": len(told)} if told else {}


def _pick(cells: Sequence[Any], order: Ints) -> tuple[Any, ...]:
    return tuple(cells[row] for row in order.tolist())


def apply_options(trace: RequestTrace, options: WorkloadOptions) -> RequestTrace:
    """The first ``limit`` requests, arriving at ``rate`` per second on average.

    They keep the trace's own burstiness; at another rate what was measured tells nothing. Objectives are
    ``slo_scale`` times their own. ``extra`` is read for how fast a model's layers are.
    """
    if options.extra is not None:
        trace = replace(trace, profiles=open_profiles(Path(options.extra)))
    if options.limit is not None:
        trace = first(trace, options.limit)
    if options.slo_scale is not None:
        trace = _relax(trace, options.slo_scale)
    span = float(trace.arrival[-1] - trace.arrival[0])
    if options.rate is None or span == 0:
        return trace
    slower = len(trace) / span / options.rate
    return replace(trace, arrival=trace.arrival * slower, measured=trace.measured if slower == 1 else None)


def _relax(trace: RequestTrace, scale: float) -> RequestTrace:
    if trace.slo is None:
        refuse_scale(trace.name, "requests")
    return replace(trace, slo=trace.slo * scale)


def refuse_scale(name: str, those: str) -> NoReturn:
    """``slo_scale`` where none of ``those`` has an objective of its own."""
    expected = f"{those} with an slo; a policy's own objectives are knobs (slo_ttft, slo_tpot)"
    raise BadInput(f"no objective of {name} can be scaled", "options.slo_scale", expected)


def first(trace: RequestTrace, count: int) -> RequestTrace:
    rows = {name: getattr(trace, name)[:count] for name in ("arrival", "prompt", "output", "model")}
    kept = {name: cells[:count] for name, cells in trace.original.items()}
    hashes = None if trace.hashes is None else trace.hashes.take(range(len(rows["arrival"])))
    measured = None if trace.measured is None else trace.measured.first(count)
    slo = None if trace.slo is None else trace.slo[:count]
    return replace(trace, **rows, original=kept, hashes=hashes, measured=measured, slo=slo)


def implausible(trace: RequestTrace) -> tuple[str, ...]:
    """What a person should look at before believing a result on this trace."""
    long = np.flatnonzero(trace.prompt + trace.output > MANY_TOKENS)
    found = []
    if len(long):
        found.append(f"{len(long)} of {len(trace)} requests have more than {MANY_TOKENS} tokens")
    if len(trace) > 1 and trace.arrival[-1] == 0:
        found.append(f"all {len(trace)} requests arrive at the same time")
    return tuple(found)
