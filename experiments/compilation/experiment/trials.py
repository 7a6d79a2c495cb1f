"""The result of a trial: what carrying out an answer on a model gave, as metrics, plan and notes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from experiments.core import dashboard
from experiments.core.differences import INTERVALS
from experiments.core.spec import CLOCKS, Result

#: What torch raises where a device has no bytes left.
OUT_OF_MEMORY = "OutOfMemoryError"

if TYPE_CHECKING:
    from experiments.compilation.live.runner import CompiledRun
    from experiments.compilation.live.verify import Verification


def result_of(trial: CompiledRun, sha256: str, live: Any) -> Result:
    """Return the trial's result; a wrong one is ``rejected`` with its counterexample.

    ``live`` has the reports.
    """
    check, clocks = trial.verification, _clocks(trial)
    return Result(
        metrics=_metrics(trial, live) | (live.predicted_metrics(trial) if trial.priced else clocks),
        series=trial.compiled.series,
        plan=live.plan_of(trial),
        status="ok" if check.ok else "rejected",
        reason=_reason(check),
        workload_sha256=sha256,
        notes={
            "device": trial.task.device,
            "compilation": _notes(trial),
            **({CLOCKS: clocks} if trial.priced else {}),
        },
    )


def failure_of(error: Exception, sha256: str, out_of_memory: bool) -> Result:
    """Return the result where the model could not be compiled."""
    status = dashboard.OOM if out_of_memory else dashboard.FAIL_TO_RUN
    notes = {"compilation": {dashboard.STATUS: status}}
    return Result(status="failed", reason=str(error), workload_sha256=sha256, notes=notes)


def dashboard_status_of(check: Verification) -> str:
    """Return what PyTorch's dashboard would call it: the first of its steps that went wrong."""
    for raised, (failed, no_memory) in zip(check.eager_raised, dashboard.EAGER_RUNS, strict=True):
        if raised:
            return no_memory if raised == OUT_OF_MEMORY else failed
    if not check.eager_repeats:
        return dashboard.TWO_RUNS_DIFFER
    if check.raised:
        return dashboard.OOM if check.raised == OUT_OF_MEMORY else dashboard.FAIL_TO_RUN
    return dashboard.PASS if check.ok else dashboard.FAIL_ACCURACY


def _reason(check: Verification) -> str | None:
    """Return why a trial is rejected; what could not be compared was not found wrong."""
    if check.ok:
        return None
    return (
        f"the result differs from eager: {check.counterexample}" if check.comparable else check.counterexample
    )


def _clocks(trial: CompiledRun) -> dict[str, float]:
    """What compiling or rewriting took here.

    A measured figure, and provenance where nothing else is measured.
    """
    if trial.compiled.untimed:
        return {}
    return {"compile_time": trial.compiled.seconds, "compile_cpu_time": trial.compiled.cpu_seconds}


def _metrics(trial: CompiledRun, live: Any) -> dict[str, float]:
    """Return the figures that were counted or measured, without what compiling took."""
    check, timing = trial.verification, trial.timing
    metrics = dict(live.counts(trial)) | dict(trial.compiled.metrics)
    if check.ok:
        metrics["max_abs_error"] = check.max_abs_error
    if timing is not None:
        low, high = INTERVALS["speedup"]
        metrics |= {"latency": timing.ours.median, "speedup": timing.speedup}
        metrics |= {low: timing.ratio.low, high: timing.ratio.high}
        calls = timing.break_even(trial.compiled.cpu_seconds)
        metrics |= {"break_even": calls} if calls else {}
    if trial.peaks is not None:
        metrics |= {"peak_memory": trial.peaks.ours, "eager_peak_memory": trial.peaks.eager}
        metrics["compression_ratio"] = trial.peaks.compression_ratio
    return metrics


def _notes(trial: CompiledRun) -> dict[str, Any]:
    check, timing = trial.verification, trial.timing
    notes: dict[str, Any] = {
        "training": trial.task.training,
        "bit_equal_to_eager": check.bit_equal,
        "inputs_compared": check.inputs_compared,
        "eager_max_abs_error": check.eager_max_abs_error,
        "max_relative_error": check.max_relative_error if check.ok else None,
        "exact_places": check.exact_places,
        "compile_cpu_seconds": trial.compiled.cpu_seconds,
        dashboard.STATUS: dashboard_status_of(check),
    }
    if trial.compiled.uncounted:
        notes["memory_not_counted"] = trial.compiled.uncounted
    if trial.compiled.untimed:
        notes["untimed"] = trial.compiled.untimed
    if timing is not None:
        notes |= {"timing": asdict(timing), "inside_the_noise": timing.inside_the_noise}
    return notes
