"""Joins a compilation policy with the live runner: one completed spec to one result."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.compilation import simulator
from experiments.compilation.experiment import tuning as tuning_experiment
from experiments.compilation.interface import CompilationPolicy, RewritePolicy
from experiments.compilation.interface.launches import LaunchPolicy
from experiments.compilation.interface.tuning import TuningPolicy
from experiments.compilation.planning.blocks.scheduling import SchedulingPolicy
from experiments.compilation.planning.tiles.plan import TilePolicy
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec, Workload
from experiments.hardware import resolve
from experiments.sources import load
from experiments.workloads.model import ModelSource
from experiments.workloads.substitutions import Substitutions

if TYPE_CHECKING:
    from experiments.compilation.live.runner import Trial


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Carry out the policy's answer; a wrong one ends ``rejected`` with its counterexample."""
    if isinstance(policy, TuningPolicy):
        return tuning_experiment.carry_out(spec, policy, progress)
    assert isinstance(policy, CompilationPolicy)
    if isinstance(policy, TilePolicy) and spec.mode == "simulated":
        return simulator.carry_out_tiles(spec, policy, progress)
    if isinstance(policy, SchedulingPolicy) and spec.mode == "simulated":
        return simulator.carry_out(spec, policy, progress)
    if isinstance(policy, LaunchPolicy) and spec.mode == "simulated":
        return simulator.replayed(spec, policy, progress)
    loaded = load(spec.workload)
    if not isinstance(loaded.value, ModelSource):
        raise BadInput(f"is {loaded.kind} ({loaded.format})", spec.workload.source, "a model")
    options = replace(loaded.value.options, training=policy.training)
    source = replace(loaded.value, options=options)
    sheet = resolve(spec.hardware).device if spec.mode == "simulated" else None
    live = registry.load_module("compilation", "live")
    try:
        file = None if source.zoo else Path(spec.workload.source)
        trial = live.carry_out(source, policy, spec.seed, progress, sheet, file, _rules(spec, policy))
    except live.CompilationFailed as error:
        return Result(status="failed", reason=str(error), workload_sha256=loaded.sha256)
    return _result(trial, loaded.sha256, simulated=sheet is not None)


def _rules(spec: RunSpec, policy: CompilationPolicy) -> Substitutions | None:
    """The rules in the workload's side file, for a policy that reads some."""
    extra = spec.workload.options.extra
    if extra is None or not (isinstance(policy, RewritePolicy) and policy.takes_rules):
        return None
    held = load(Workload(extra))
    if not isinstance(held.value, Substitutions):
        raise BadInput(f"is {held.kind} ({held.format})", extra, "substitution rules")
    return held.value


def _result(trial: Trial, sha256: str, simulated: bool) -> Result:
    live = registry.load_module("compilation", "live")
    check = trial.verification
    metrics = _metrics(trial) | (live.predicted_metrics(trial) if simulated else {})
    return Result(
        metrics=metrics,
        series=trial.compiled.series,
        plan=live.plan_of(trial),
        status="ok" if check.ok else "rejected",
        reason=None if check.ok else f"the result differs from eager: {check.counterexample}",
        workload_sha256=sha256,
        notes={"device": trial.task.device, "compilation": _notes(trial)},
    )


def _metrics(trial: Trial) -> dict[str, float]:
    """The figures that were counted or measured."""
    check, timing = trial.verification, trial.timing
    live = registry.load_module("compilation", "live")
    metrics = dict(live.counts(trial)) | dict(trial.compiled.metrics)
    if not trial.compiled.untimed:
        metrics["compile_time"] = trial.compiled.seconds
        metrics["compile_cpu_time"] = trial.compiled.cpu_seconds
    if check.ok:
        metrics["max_abs_error"] = check.max_abs_error
    if timing is not None:
        metrics |= {"latency": timing.ours.median, "speedup": timing.speedup}
        calls = timing.break_even(trial.compiled.seconds)
        metrics |= {"break_even": calls} if calls else {}
    return metrics


def _notes(trial: Trial) -> dict[str, Any]:
    check, timing = trial.verification, trial.timing
    notes: dict[str, Any] = {
        "training": trial.task.training,
        "bit_equal_to_eager": check.bit_equal,
        "inputs_compared": check.inputs_compared,
        "eager_max_abs_error": check.eager_max_abs_error,
        "max_relative_error": check.max_relative_error if check.ok else None,
        "exact_places": check.exact_places,
        "compile_cpu_seconds": trial.compiled.cpu_seconds,
    }
    if trial.compiled.untimed:
        notes["untimed"] = trial.compiled.untimed
    if timing is not None:
        notes |= {"timing": asdict(timing), "inside_the_noise": timing.inside_the_noise}
    return notes
