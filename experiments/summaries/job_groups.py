"""Jobs of a trace by when they come, by what they ask for and by whose they are: counts and GPU time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.core.units import DAY, HOUR, MINUTE
from experiments.summaries.drawing import MOST_POINTS
from experiments.workloads.jobs import JobTrace
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Sizes of jobs that are told one by one; of more, those between two powers of two are told together.
MOST_SIZES = 16
#: Tenants that are told one by one: those with the most GPU time (jobs, where durations are not told).
MOST_TENANTS = 12
#: What jobs may be told apart by, the first that a trace has.
OWNERS = ("tenant", "user")
#: Arrivals are counted by whole hours, of a trace of less than ``SHORT`` by less, of a long one by more.
SHORT = 6 * HOUR
STEPS = (*(MINUTE * n for n in (1, 5, 15)), *(HOUR * n for n in (1, 2, 3, 4, 6, 12)), DAY, 7 * DAY, 28 * DAY)
FEW_BINS = 90


def groups_of(trace: JobTrace) -> dict[str, Any]:
    """JSON: ``arrivals``, ``day`` (their rhythm), ``sizes``, ``owners``, and the rows that were ``left_out``.

    GPU seconds and durations are ``None`` where a trace does not tell how long jobs run.
    """
    if not len(trace):
        return {}
    owner = next((name for name in OWNERS if trace.has(name)), None)
    left_out = trace.facts.get("left out")
    return {
        "arrivals": _arrivals(trace),
        "day": _day(trace),
        "sizes": _sizes(trace),
        "owner": owner,
        "owners": _owners(trace, trace.column(owner)) if owner else [],
        "left_out": dict(left_out) if isinstance(left_out, Mapping) else {},
    }


def wanted_gpus(trace: JobTrace) -> Floats:
    """The GPUs that each job wants: of a job that shares one a part."""
    share = trace.traits.get("gpu_share")
    whole = trace.gpus.astype(np.float64)
    return whole if share is None else whole * share


def _arrivals(trace: JobTrace) -> dict[str, Any]:
    """Jobs and the GPUs they ask for in each stretch of ``step`` seconds from the first submission on."""
    since = trace.submit - trace.submit[0]
    step = _step(float(since[-1]))
    place = np.floor_divide(since, step).astype(np.int64)
    gpus = np.bincount(place, weights=wanted_gpus(trace))
    return {"step": step, "jobs": np.bincount(place).tolist(), "gpus": np.round(gpus, 6).tolist()}


def _step(span: float) -> float:
    most, least = (FEW_BINS, MINUTE) if span < SHORT else (MOST_POINTS, HOUR)
    fine = (step for step in STEPS if step >= least and span // step < most)
    return next(fine, DAY * (span // DAY // most + 1))


def _day(trace: JobTrace) -> list[float]:
    """Jobs an hour at each hour of a day, counted from the first submission; none of less than two days."""
    hours = np.floor_divide(trace.submit - trace.submit[0], HOUR).astype(np.int64)
    if hours[-1] < 2 * 24:
        return []
    there = np.bincount(np.arange(hours[-1] + 1) % 24, minlength=24)
    mean: list[float] = (np.bincount(hours % 24, minlength=24) / there).tolist()
    return mean


def _sizes(trace: JobTrace) -> list[dict[str, Any]]:
    """Rows by the GPUs that jobs ask for, the fewest first."""
    wanted = wanted_gpus(trace)
    size = np.where(wanted < 1, np.where(wanted > 0, 0.5, 0.0), trace.gpus)
    if len(np.unique(size)) > MOST_SIZES:
        size = np.where(size > 1, 2.0 ** np.ceil(np.log2(np.maximum(size, 1))), size)
        names = {upper: _range(upper) for upper in np.unique(size).tolist()}
    else:
        names = {upper: name_size(upper) for upper in np.unique(size).tolist()}
    distinct, place = np.unique(size, return_inverse=True)
    return _rows([names[upper] for upper in distinct.tolist()], place, trace)


def name_size(gpus: float) -> str:
    """``1 GPU``, ``8 GPUs``, ``part of a GPU``, ``no GPU``."""
    if gpus < 1:
        return "part of a GPU" if gpus else "no GPU"
    return f"{gpus:,.0f} GPU{'' if gpus == 1 else 's'}"


def _range(upper: float) -> str:
    """Sizes up to a power of two and above the one before."""
    return name_size(upper) if upper <= 2 else f"{upper // 2 + 1:,.0f} to {upper:,.0f} GPUs"


def _owners(trace: JobTrace, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows by owner, the one with the most GPU time first; those after the first dozen are one row."""
    distinct, place = np.unique(np.array(names, dtype=object).astype(str), return_inverse=True)
    rows = _rows([name or "not named" for name in distinct.tolist()], place, trace)
    by = "gpu_seconds" if rows[0]["gpu_seconds"] is not None else "jobs"
    order = sorted(range(len(rows)), key=lambda row: (-rows[row][by], rows[row]["name"]))
    if len(order) <= MOST_TENANTS:
        return [rows[row] for row in order]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.minimum(np.arange(len(order)), MOST_TENANTS)
    kept = [rows[row]["name"] for row in order[:MOST_TENANTS]]
    return _rows([*kept, f"{len(order) - MOST_TENANTS:,} others"], rank[place], trace)


def _rows(names: Sequence[str], place: Ints, trace: JobTrace) -> list[dict[str, Any]]:
    """What the jobs of each group come to; ``median`` is of their durations."""
    counts = np.bincount(place, minlength=len(names)).tolist()
    known = ~np.isnan(trace.service)
    if not known.any():
        none = {"gpu_seconds": None, "median": None}
        return [{"name": name, "jobs": count, **none} for name, count in zip(names, counts, strict=True)]
    work = np.bincount(
        place[known], weights=(wanted_gpus(trace) * trace.service)[known], minlength=len(names)
    )
    medians = [_median(trace.service[known & (place == group)]) for group in range(len(names))]
    columns = zip(names, counts, work.tolist(), medians, strict=True)
    return [dict(zip(("name", "jobs", "gpu_seconds", "median"), row, strict=True)) for row in columns]


def _median(seconds: npt.NDArray[np.float64]) -> float | None:
    return float(np.median(seconds)) if len(seconds) else None
