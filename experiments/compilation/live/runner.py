"""One policy's answer carried out: prepare, compile or rewrite, verify, time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from experiments.compilation.interface import (
    CompilationPolicy,
    Recipe,
    RecipePolicy,
    RewritePolicy,
    Rewritten,
    violations,
)
from experiments.compilation.interface.control import ControlPolicy
from experiments.compilation.live import approximation, backends, control, tiles
from experiments.compilation.live.backends.base import Compiled, Task, clocked
from experiments.compilation.live.calibration import Calibrator
from experiments.compilation.live.costs import Bench, Measured, Prices, Roofline
from experiments.compilation.live.exactness import exact_places
from experiments.compilation.live.lower import lower, parameters_of
from experiments.compilation.live.prepared import prepare
from experiments.compilation.live.timing import Comparison, compare
from experiments.compilation.live.types import Inference
from experiments.compilation.live.verify import Verification, verify
from experiments.compilation.planning.tiles.plan import TilePolicy
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.hardware.parts import Device
from experiments.workloads.model import ModelSource
from experiments.workloads.substitutions import Substitutions


@dataclass(frozen=True)
class Trial:
    """What carrying out an answer gave. ``timing`` is ``None`` when the result was wrong or times are not of this
    host; ``rewritten`` and ``bench`` belong to rewrites, ``recipe`` to recipes.
    """

    task: Task
    compiled: Compiled
    verification: Verification
    timing: Comparison | None
    recipe: Recipe | None = None
    rewritten: Rewritten | None = None
    bench: Bench | None = None


def carry_out(
    source: ModelSource,
    policy: CompilationPolicy,
    seed: int,
    progress: Progress,
    sheet: Device | None = None,
    file: Path | None = None,
    rules: Substitutions | None = None,
) -> Trial:
    """Build the model on this host's device and do what ``policy`` says. With a ``sheet`` the costs are that device's,
    by roofline, and nothing is timed. ``rules`` are those of the workload's side file.
    """
    progress(0.05, "building the model")
    task = prepare(source, policy.training, seed, part(progress, 0.3, 0.7), file)
    progress(0.15, "exporting the graph")
    if isinstance(policy, RecipePolicy):
        return _follow(policy.recipe(task.whole), task, seed, progress)
    if isinstance(policy, TilePolicy):
        return _follow(tiles.recipe_of(policy, task, part(progress, 0.15, 0.3)), task, seed, progress)
    if isinstance(policy, ControlPolicy):
        return _controlled(policy, task, seed, progress)
    assert isinstance(policy, RewritePolicy)
    recipe = policy.instead(task.graph)
    if recipe is not None:
        if sheet:
            raise BadInput(f"{recipe.backend} is run, not priced", "mode", "measured, on local hardware")
        return _follow(recipe, task, seed, progress)
    prices: Prices = Roofline(sheet) if sheet else Measured(task.device)
    bench = Bench(Inference(task.device), prices, part(progress, 0.2, 0.6), Calibrator(task), rules)
    trial = _rewrite(policy, task, bench, seed, progress, timed=sheet is None)
    if isinstance(prices, Measured):
        prices.keep()
    return trial


def _follow(recipe: Recipe, task: Task, seed: int, progress: Progress) -> Trial:
    progress(0.3, "compiling")
    compiled = backends.compiled(recipe.backend, recipe.options, task)
    progress(0.7, "comparing with eager in float64")
    if compiled.kept is None:
        checked = verify(task, compiled, seed, recipe.bound)
    else:
        checked, compiled = approximation.followed(task, compiled, recipe, seed)
    return Trial(task, compiled, checked, _timed(task, compiled, checked, progress), recipe)


def _controlled(policy: ControlPolicy, task: Task, seed: int, progress: Progress) -> Trial:
    """The levels that the policy chooses for loops, branches and recursion, by timing all of them."""
    compiled = control.build(policy, task)
    progress(0.7, "comparing with eager in float64")
    checked = verify(task, compiled, seed)
    recipe = Recipe("control flow", policy.knob_values())
    return Trial(task, compiled, checked, _timed(task, compiled, checked, progress), recipe)


def _rewrite(
    policy: RewritePolicy, task: Task, bench: Bench, seed: int, progress: Progress, timed: bool
) -> Trial:
    original = task.graph
    with clocked() as clock:
        rewritten = policy.rewrite(original, bench)
        found = violations(rewritten.graph, original)
        if found:
            raise BadInput(found[0], f"{policy.name}'s graph")
        progress(0.6, "lowering the rewritten graph")
        module = lower(rewritten.graph, task.origin, gradients=task.training)
    parameters = parameters_of(module, task.module) if task.training else None
    compiled = Compiled(module, clock.wall, clock.cpu, parameters=parameters)
    checked, compiled = _judged(task, compiled, rewritten, seed, progress)
    timing = _timed(task, compiled, checked, progress) if timed else None
    return Trial(task, compiled, checked, timing, None, rewritten, bench)


def _judged(
    task: Task, compiled: Compiled, rewritten: Rewritten, seed: int, progress: Progress
) -> tuple[Verification, Compiled]:
    """The verdict on a rewrite by what it claims, and ``compiled`` with what an approximation costs."""
    progress(0.7, "comparing with eager in float64")
    if rewritten.exactness == "approximate":
        return approximation.judged(task, compiled, rewritten, seed)
    checked = verify(task, compiled, seed)
    if rewritten.exactness != "exact" or not checked.ok:
        return checked, compiled
    places, complaint = exact_places(task.graph, rewritten.graph, task.device, seed)
    return replace(checked, exact_places=places, counterexample=complaint), compiled


def _timed(task: Task, compiled: Compiled, checked: Verification, progress: Progress) -> Comparison | None:
    if not checked.ok or compiled.untimed:
        return None
    progress(0.8, "timing in turn with eager")
    ours, eager = _once(task, compiled.call), _once(task, task.module)
    return compare(ours, eager, task.device)


def _once(task: Task, call: Callable[..., Any]) -> Callable[[], Any]:
    """One call; in training the backward pass too."""

    def train() -> None:
        call(*task.inputs).backward()

    return train if task.training else torch.no_grad()(lambda: call(*task.inputs))
