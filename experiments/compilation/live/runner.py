"""One policy's answer carried out: prepare, compile or rewrite, verify, time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from experiments.compilation.interface import (
    CONSTANT,
    Graph,
    IllTyped,
    Recipe,
    RewritePolicy,
    Rewritten,
    refuse,
    violations,
)
from experiments.compilation.interface.control import ControlPolicy
from experiments.compilation.live import approximation, backends, control
from experiments.compilation.live.backends.base import Compiled, Task, clock_compilation
from experiments.compilation.live.calibration import Calibrator
from experiments.compilation.live.costs import Bench, MeasuredPrices, Prices, Roofline
from experiments.compilation.live.exactness import exact_places
from experiments.compilation.live.lower import attribute, lower, parameters_of
from experiments.compilation.live.peaks import PeakMemory, peak_memory
from experiments.compilation.live.timing import Comparison, compare
from experiments.compilation.live.types import Inference
from experiments.compilation.live.verify import Verification, verify
from experiments.core.errors import BadInput, ImpossiblePlan
from experiments.core.progress import Progress, part
from experiments.hardware.parts import Device
from experiments.workloads.substitutions import Substitutions


@dataclass(frozen=True)
class CompiledRun:
    """Outcome of carrying out an answer.

    - ``timing``, ``peaks``: ``None`` when the result was wrong or times are not of this host.
    - ``recipe``: belongs to recipes.
    - ``rewritten``, ``bench``: belong to rewrites.
    - ``priced``: by a named device, not timed.
    """

    task: Task
    compiled: Compiled
    verification: Verification
    timing: Comparison | None
    recipe: Recipe | None = None
    rewritten: Rewritten | None = None
    bench: Bench | None = None
    priced: bool = False
    peaks: PeakMemory | None = None


def follow(recipe: Recipe, task: Task, seed: int, progress: Progress) -> CompiledRun:
    """Compile the model as ``recipe`` says."""
    if recipe.backend not in backends.BACKENDS:
        raise ImpossiblePlan([f"no backend is called {recipe.backend!r}"])
    progress(0.3, "compiling")
    compiled = backends.compile_task(recipe.backend, recipe.options, task)
    progress(0.7, "comparing with eager in float64")
    if compiled.kept is None:
        checked = verify(task, compiled, seed, recipe.bound)
    else:
        checked, compiled = approximation.verify_recipe(task, compiled, recipe, seed)
    return _measure(CompiledRun(task, compiled, checked, None, recipe), seed, progress)


def choose_levels(policy: ControlPolicy, task: Task, seed: int, progress: Progress) -> CompiledRun:
    """Carry out loops, branches and recursion at the levels that the policy chooses by timing all of them."""
    compiled = control.build(policy, task)
    progress(0.7, "comparing with eager in float64")
    checked = verify(task, compiled, seed)
    recipe = Recipe("control flow", policy.knob_values())
    return _measure(CompiledRun(task, compiled, checked, None, recipe), seed, progress)


def rewrite(
    policy: RewritePolicy, task: Task, seed: int, progress: Progress, rules: Substitutions | None = None
) -> CompiledRun:
    """Rewrite the graph by costs measured here.

    Or follow the library's recipe that the policy names instead.
    """
    recipe = policy.instead(task.graph)
    if recipe is not None:
        return follow(recipe, task, seed, progress)
    prices = MeasuredPrices(task.device)
    trial = _rewrite(policy, task, _bench(task, prices, progress, rules), seed, progress, timed=True)
    prices.keep()
    return trial


def rewrite_by_roofline(
    policy: RewritePolicy,
    task: Task,
    seed: int,
    progress: Progress,
    sheet: Device,
    rules: Substitutions | None = None,
) -> CompiledRun:
    """Rewrite the graph by the costs of ``sheet``'s device, by roofline; nothing is timed."""
    recipe = policy.instead(task.graph)
    if recipe is not None:
        raise BadInput(f"{recipe.backend} is run, not priced", "mode", "measured, on local hardware")
    bench = _bench(task, Roofline(sheet), progress, rules)
    return _rewrite(policy, task, bench, seed, progress, timed=False)


def _bench(task: Task, prices: Prices, progress: Progress, rules: Substitutions | None) -> Bench:
    return Bench(Inference(task.device), prices, part(progress, 0.2, 0.6), Calibrator(task), rules)


def _rewrite(
    policy: RewritePolicy, task: Task, bench: Bench, seed: int, progress: Progress, timed: bool
) -> CompiledRun:
    original = task.graph
    with clock_compilation() as clock:
        rewritten = policy.rewrite(original, bench)
        refuse(violations(rewritten.graph, original))
        progress(0.6, "lowering the rewritten graph")
        module = _lower(rewritten.graph, task)
    parameters = parameters_of(module, task.module) if task.training else None
    compiled = Compiled(module, clock.wall, clock.cpu, parameters=parameters)
    checked, compiled = _verify(task, compiled, rewritten, seed, progress)
    found = CompiledRun(task, compiled, checked, None, None, rewritten, bench, priced=not timed)
    return _measure(found, seed, progress) if timed else found


def _lower(graph: Graph, task: Task) -> fx.GraphModule:
    try:
        return lower(graph, task.origin, gradients=task.training)
    except IllTyped as error:
        raise ImpossiblePlan([str(error)]) from error


def _verify(
    task: Task, compiled: Compiled, rewritten: Rewritten, seed: int, progress: Progress
) -> tuple[Verification, Compiled]:
    """Return the verdict on a rewrite by what it claims, and ``compiled`` with what an
    approximation costs.
    """
    progress(0.7, "comparing with eager in float64")
    if rewritten.exactness == "approximate":
        return approximation.verify_rewrite(task, compiled, rewritten, seed)
    checked = verify(task, compiled, seed)
    if rewritten.exactness != "exact" or not checked.ok:
        return checked, compiled
    paths = [node.target for node in task.graph.nodes if node.kind == CONSTANT]
    constants = {path: attribute(task.origin, path) for path in paths}
    places, complaint = exact_places(task.graph, rewritten.graph, task.device, seed, task.progress, constants)
    return replace(checked, exact_places=places, counterexample=complaint), compiled


def _measure(run: CompiledRun, seed: int, progress: Progress) -> CompiledRun:
    """Return the run with times and peaks of both sides, where ours is right and they mean something."""
    task, compiled = run.task, run.compiled
    if not run.verification.ok or compiled.untimed:
        return run
    progress(0.8, "timing in turn with eager")
    ours, eager = _once(task, compiled.call), _once(task, task.module)
    run = replace(run, timing=compare(ours, eager, task.device, seed))
    if compiled.uncounted:
        return run
    progress(0.95, "counting the memory of a call")
    return replace(run, peaks=peak_memory(task, compiled, ours, eager))


def _once(task: Task, call: Callable[..., Any]) -> Callable[[], Any]:
    """One call; in training the backward pass too."""

    def train() -> None:
        call(*task.inputs).backward()

    return train if task.training else torch.no_grad()(lambda: call(*task.inputs))
