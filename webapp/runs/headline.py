"""What came out of a run, in one sentence, and the four figures that stand large below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.runs.findings import FINDINGS, Told, workload_of
from webapp.runs.models import Run

#: Figures that stand large, the first four that a run has.
LEADING: Mapping[str, tuple[str, ...]] = {
    "memory": ("peak_memory", "step_time", "ideal_share", "samples_per_second", "stall_time"),
    "parallel": ("step_time", "mfu", "peak_memory_per_device", "tokens_per_second", "samples_per_second"),
    "compilation": ("latency", "speedup", "compile_time", "peak_memory", "kernels", "ops", "rewrites"),
    "cluster": ("avg_jct", "p99_jct", "makespan", "utilization"),
    "serving": (
        *("max_rate", "ttft_p99", "tpot_p99", "throughput", "tokens_per_second", "slo_attainment"),
        *("latency", "latency_p50", "latency_p99", "realtime_overhead", "best_effort_throughput"),
        *("mfu", "mbu", "max_context", "communication_time"),
    ),
}
LARGE = 4
#: Of a run without an answer, by its state: the policy, its workload and the hardware.
WITHOUT: Mapping[str, str] = {
    Run.State.QUEUED: "{} on {} waits for its turn.",
    Run.State.RUNNING: "{} on {} is at work.",
    Run.State.INFEASIBLE: "{} does not fit {} into {}.",
    Run.State.REJECTED: "{} cannot be carried out on {}.",
    Run.State.FAILED: "{} on {} ended without an answer.",
    Run.State.CANCELLED: "{} on {} was cancelled.",
}


def headline_of(run: Run, values: Mapping[str, float], outcome: Mapping[str, Any]) -> SafeString | None:
    """The sentence; ``None`` for what is no run of a policy, or where its figures do not make one."""
    if run.kind != Run.Kind.POLICY:
        return None
    if run.state != Run.State.SUCCEEDED:
        said = format_html(WITHOUT[run.state], run.policy, workload_of(run), run.hardware)
        return format_html("<strong>{}</strong>", said)
    found = tuple(FINDINGS[run.family](Told(run, values, outcome))) if run.family in FINDINGS else ()
    if not found:
        return None
    more = format_html_join("", " {}", ((one,) for one in found[1:]))
    return format_html("<strong>{}.</strong>{}", found[0], more)


def leading_figures(family: str, values: Mapping[str, float]) -> tuple[str, ...]:
    """The names of at most ``LARGE`` figures that stand large."""
    return tuple(name for name in LEADING.get(family, ()) if name in values)[:LARGE]


def limit_of(outcome: Mapping[str, Any]) -> float | None:
    """Bytes of the smallest device that the outcome tells of."""
    capacities = (outcome.get("plan") or {}).get("capacity_by_worker")
    drawn = ((outcome.get("series") or {}).get("capacity") or {}).get("y")
    return min(capacities or drawn or (), default=None)
