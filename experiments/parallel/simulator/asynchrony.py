"""What an asynchronous method reports besides times: the staleness of gradients, and how many versions of
weights are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from experiments.core.spec import Series
from experiments.parallel.interface import ParallelPlan, PlanningEstimate, stage_parameters
from experiments.parallel.interface.versions import version_trace


@dataclass(frozen=True)
class Asynchrony:
    """Metrics and curves by their names in an outcome."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)


def staleness_series(staleness: Sequence[int]) -> Series:
    """The share of gradients that are so many updates old."""
    counts = Counter(staleness)
    updates = range(max(counts, default=0) + 1)
    shares = [counts[u] / len(staleness) for u in updates] if staleness else [0.0]
    return Series("fraction", list(updates), shares, "updates late")


def staleness_metrics(staleness: Sequence[int]) -> dict[str, float]:
    return {
        "staleness_mean": sum(staleness) / len(staleness) if staleness else 0.0,
        "staleness_max": float(max(staleness, default=0)),
    }


def pipeline_asynchrony(plan: ParallelPlan, estimate: PlanningEstimate) -> Asynchrony:
    """Return how asynchronous a pipeline is, from the plan's own trace of versions.

    ``stashed_bytes`` is of the stage that keeps most next to its newest weights.
    """
    trace = version_trace(plan)
    stages = range(len(plan.stages))
    staleness = [[use.staleness for use in trace.of_stage(stage)] for stage in stages]
    parameters = [float(stage_parameters(plan, stage, estimate).sum()) for stage in plan.stages]
    stashed = [(k - 1) * p * estimate.states.weight for k, p in zip(trace.kept, parameters, strict=True)]
    numbers = [float(stage) for stage in stages]
    return Asynchrony(
        {
            **staleness_metrics(list(chain.from_iterable(staleness))),
            "weight_versions": float(max(trace.kept)),
            "stashed_bytes": max(stashed),
        },
        {
            "staleness_by_stage": Series(
                "updates", numbers, [float(max(found)) for found in staleness], "stage"
            ),
            "weight_versions_by_stage": Series("versions", numbers, [float(k) for k in trace.kept], "stage"),
            "stashed_bytes_by_stage": Series("bytes", numbers, stashed, "stage"),
            "staleness": staleness_series(list(chain.from_iterable(staleness))),
        },
    )
