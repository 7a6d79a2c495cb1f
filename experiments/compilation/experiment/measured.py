"""Policies whose answers torch carries out on a model.

Each one's answer, verified, and timed or priced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.compilation.experiment.trials import failure_of, result_of
from experiments.compilation.interface import CompilationPolicy, RecipePolicy, RewritePolicy
from experiments.compilation.interface.blocks import SchedulingPolicy
from experiments.compilation.interface.control import ControlPolicy
from experiments.compilation.interface.launches import LaunchPolicy
from experiments.compilation.interface.tiles import TilePolicy
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.package_files import path_of
from experiments.core.progress import Progress, part
from experiments.core.reading import refusal
from experiments.core.spec import Result, RunSpec, Workload
from experiments.hardware import resolve
from experiments.sources import load, model_of, repeatable
from experiments.workloads.substitutions import Substitutions

if TYPE_CHECKING:
    from experiments.compilation.live.backends.base import Task
    from experiments.compilation.live.runner import CompiledRun


def follow_recipe(spec: RunSpec, policy: RecipePolicy | LaunchPolicy, progress: Progress) -> Result:
    """Compile the model by the policy's recipe."""

    def carry(task: Task) -> CompiledRun:
        trial: CompiledRun = _live().follow(policy.recipe(task.whole), task, spec.seed, progress)
        return trial

    return _on_model(spec, policy, progress, carry)


def run_tiles(spec: RunSpec, policy: TilePolicy, progress: Progress) -> Result:
    """Carry out the model's products with the tiles that the policy plans for this host's GPU."""

    def carry(task: Task) -> CompiledRun:
        recipe = _live().recipe_of(policy, task, part(progress, 0.15, 0.3))
        trial: CompiledRun = _live().follow(recipe, task, spec.seed, progress)
        return trial

    return _on_model(spec, policy, progress, carry)


def run_blocks(spec: RunSpec, policy: SchedulingPolicy, progress: Progress) -> Result:
    """Carry out the policy's schedule of the model's blocks on threads, or on streams of a GPU."""
    if policy.training:
        raise BadInput("blocks of inference are scheduled", "knobs.training", "false")

    def carry(task: Task) -> CompiledRun:
        recipe = _live().schedule_recipe(policy, task, part(progress, 0.15, 0.3))
        trial: CompiledRun = _live().follow(recipe, task, spec.seed, progress)
        return trial

    return _on_model(spec, policy, progress, carry)


def choose_levels(spec: RunSpec, policy: ControlPolicy, progress: Progress) -> Result:
    """Carry out the model's control flow at the levels that the policy chooses."""

    def carry(task: Task) -> CompiledRun:
        trial: CompiledRun = _live().choose_levels(policy, task, spec.seed, progress)
        return trial

    return _on_model(spec, policy, progress, carry)


def run_rewrite(spec: RunSpec, policy: RewritePolicy, progress: Progress) -> Result:
    """Run the graph that the policy makes of the model's by costs measured here."""
    rules = _rules(spec, policy)

    def carry(task: Task) -> CompiledRun:
        trial: CompiledRun = _live().rewrite(policy, task, spec.seed, progress, rules)
        return trial

    return _on_model(spec, policy, progress, carry)


def price_rewrite(spec: RunSpec, policy: RewritePolicy, progress: Progress) -> Result:
    """Verify the policy's graph of the model, and price it and the model's by the costs of a named device."""
    rules, sheet = _rules(spec, policy), resolve(spec.hardware).device

    def carry(task: Task) -> CompiledRun:
        trial: CompiledRun = _live().rewrite_by_roofline(policy, task, spec.seed, progress, sheet, rules)
        return trial

    return _on_model(spec, policy, progress, carry)


def _live() -> Any:
    """What torch carries out; loaded when a run needs it, since most simulated ones do not."""
    return registry.load_module("compilation", "live")


def _on_model(
    spec: RunSpec, policy: CompilationPolicy, progress: Progress, carry: Callable[[Task], CompiledRun]
) -> Result:
    """Return the spec's model built and exported here, and the result of what ``carry`` makes of it."""
    model, loaded = model_of(repeatable(spec.workload))
    source = replace(model, options=replace(model.options, training=policy.trains))
    file = None if source.zoo else path_of(spec.workload.source)
    live = _live()
    progress(0.05, "building the model")
    task = live.prepare(source, policy.trains, spec.seed, part(progress, 0.3, 0.7), file)
    if policy.updates:
        task = live.with_update(task)
    progress(0.15, "exporting the graph")
    try:
        return result_of(carry(task), loaded.sha256, live)
    except live.CompilationFailed as error:
        return failure_of(error, loaded.sha256, isinstance(error, live.OutOfMemory))


def _rules(spec: RunSpec, policy: RewritePolicy) -> Substitutions | None:
    """Return the rules in the workload's side file, for a policy that reads some."""
    extra = spec.workload.options.extra
    if extra is None or not policy.takes_rules:
        return None
    side = load(Workload(extra))
    if not isinstance(side.value, Substitutions):
        raise refusal(side.kind, ("rules",), extra)
    return side.value
