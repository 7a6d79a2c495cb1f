"""The document and the figures of planned kernels.

A row for each, sums by kind and by what they wait for, others' times.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.compilation.interface.tiles import TilePlan
from experiments.core.budget import ENDED_AT
from experiments.core.spec import Series

#: Systems of recorded times that have a figure of their own, by the names that tables of times give them.
FIGURES = {
    "TF": "speedup_over_tensorflow",
    "TVM": "speedup_over_tvm",
    "Ansor": "speedup_over_ansor",
    "Roller-Top10": "speedup_over_roller",
}
SUMMED = ("seconds", "least_seconds", "apart_seconds", "bytes", "least_bytes", "apart_bytes", "flops")
Row = Mapping[str, Any]


def document(plan: TilePlan) -> dict[str, Any]:
    """Return kernels in launch order, and sums over all, over each kind and over what waits for the same."""
    rows = [kernel.to_json() for kernel in plan.kernels]
    summary = [
        {"of": "all kernels", **_totals(rows)},
        *_group_rows(rows, lambda row: " + ".join(dict.fromkeys(row["kinds"]))),
        *_group_rows(rows, lambda row: f"waiting for {row['bound']}"),
    ]
    ended = {ENDED_AT: plan.ended_at} if plan.ended_at else {}
    return {"examined": plan.examined, "summary": summary, "kernels": rows, **ended}


def _group_rows(rows: Sequence[Row], name: Callable[[Row], str]) -> list[dict[str, Any]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[name(row)].append(row)
    return [{"of": key, **_totals(chosen)} for key, chosen in sorted(found.items())]


def _totals(rows: Sequence[Row]) -> dict[str, float]:
    """Sums; ``least_*`` are bounds, ``apart_*`` the operators by themselves."""
    return {"kernels": len(rows), **{name: sum(row[name] for row in rows) for name in SUMMED}}


def ratios(
    plan: TilePlan, launch: float, recorded: Mapping[str, Mapping[str, float]]
) -> Mapping[str, Mapping[str, float]]:
    """Return by system and operator the recorded time over that of our kernel.

    Launches are left out as records leave them out.
    """
    ours = {k.operators[0]: k.cost.seconds - launch for k in plan.kernels if len(k.operators) == 1}
    return {
        system: {name: seconds / ours[name] for name, seconds in times.items() if name in ours}
        for system, times in recorded.items()
    }


def figures(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Geometric means over the operators."""
    return {
        FIGURES[system]: math.exp(sum(map(math.log, values.values())) / len(values))
        for system, values in found.items()
        if system in FIGURES and values
    }


def curves(found: Mapping[str, Mapping[str, float]]) -> dict[str, Series]:
    """For every system the ratios from small to large.

    Where they pass 1 the rest of the operators are faster here.
    """
    return {
        f"recorded {system} over ours": Series(
            "ratio", list(range(1, len(values) + 1)), sorted(values.values()), "operators"
        )
        for system, values in found.items()
        if values
    }
