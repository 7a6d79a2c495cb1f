"""Joins a compilation policy with the live runner: one completed spec to one result."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, cast

from experiments.compilation.interface import CompilationPolicy
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.sources import load
from experiments.workloads.model import ModelSource

if TYPE_CHECKING:
    from experiments.compilation.live import Measured


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Carry out the policy's recipe on this host; a wrong rewrite ends ``rejected`` with its counterexample."""
    loaded = load(spec.workload)
    if not isinstance(loaded.value, ModelSource):
        raise BadInput(f"is {loaded.kind} ({loaded.format})", spec.workload.source, "a model")
    source = replace(loaded.value, options=replace(loaded.value.options, training=False))
    live = registry.load_module("compilation", "live")
    try:
        measured = live.carry_out_live(source, cast(CompilationPolicy, policy).recipe, spec.seed, progress)
    except live.CompilationFailed as error:
        return Result(status="failed", reason=str(error), workload_sha256=loaded.sha256)
    return _result(measured, loaded.sha256)


def _result(measured: Measured, sha256: str) -> Result:
    check, timing = measured.verification, measured.timing
    metrics = {
        "ops": measured.ops,
        "rewrites": measured.rewrites,
        "compile_time": measured.compile_seconds,
    }
    if check.ok:
        metrics["max_abs_error"] = check.max_abs_error
    if timing is not None:
        metrics |= {"latency": timing.ours.median, "speedup": timing.speedup}
    for name in ("kernels", "graph_breaks"):
        if getattr(measured, name) is not None:
            metrics[name] = getattr(measured, name)
    return Result(
        metrics=metrics,
        plan={
            "recipe": measured.recipe.to_json(),
            "ops_before": measured.graph_ops,
            "ops_after": measured.ops,
        },
        violations=measured.violations,
        status="ok" if check.ok else "rejected",
        reason=None if check.ok else f"the result differs from eager: {check.counterexample}",
        workload_sha256=sha256,
        notes={"device": measured.device, "evaluation_mode": True, "compilation": _notes(measured)},
    )


def _notes(measured: Measured) -> dict[str, object]:
    check, timing = measured.verification, measured.timing
    notes: dict[str, object] = {
        "bit_equal_to_eager": check.bit_equal,
        "inputs_compared": check.inputs_compared,
        "eager_max_abs_error": check.eager_max_abs_error,
        "compile_cpu_seconds": measured.compile_cpu_seconds,
    }
    if timing is not None:
        notes |= {"timing": asdict(timing), "inside_the_noise": timing.ours.overlaps(timing.eager)}
    return notes
