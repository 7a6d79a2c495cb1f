"""An approximation held to what it says, and what it costs: bytes, errors, agreement, loss.

Weights that were kept in fewer bits first: what runs must agree with a model that has their values as closely
as any rewrite must. For our own codes ``planning.numerics.quantization`` works these values out by another
path, so a wrong axis, scale or zero point is rejected however coarse the codes are; a library's are read back
from it and held to the noise that rounding to nearest makes. How far the values are from the original's is
then reported, not judged. A graph with casts must be the original's equal without them, and is then compared
with torch's own autocast.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from experiments.compilation.interface import CONSTANT, Approximation, Graph, Recipe, Rewritten
from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.kept_weights import KeptWeight, channel_sqnr, rows, weight_sqnr, with_kept
from experiments.compilation.live.lower import lower, parameters_of
from experiments.compilation.live.output_agreement import compare_outputs, tensors
from experiments.compilation.live.training_curve import trained_beside
from experiments.compilation.live.unfriendly import DRAWN_ANEW, GIVEN, unfriendly
from experiments.compilation.live.verify import Verification, verify
from experiments.compilation.live.widening import widened
from experiments.compilation.planning.numerics.quantization import Scheme, quantize

#: Unfriendly inputs that are distributed as calibration's were.
LIKE_CALIBRATION = (GIVEN, DRAWN_ANEW)


def verify_rewrite(
    task: Task, ours: Compiled, rewritten: Rewritten, seed: int
) -> tuple[Verification, Compiled]:
    """Return the verdict on a rewrite and, where it is good, ``ours`` with the approximation's figures."""
    claimed = rewritten.approximation
    if claimed.casts:
        checked = _without_casts(task, rewritten, seed)
        if not checked.ok:
            return checked, ours
    kept = [_kept_weight(task.module, path, scheme) for path, scheme in claimed.weights.items()]
    cases = [
        case
        for case in unfriendly(task.inputs, seed)
        if not claimed.calibration or case[0] in LIKE_CALIBRATION
    ]
    checked, ours = _verify_kept_weights(
        task, ours, kept, rewritten.bound, cases, seed, _autocast(task, claimed.casts)
    )
    if not checked.ok:
        return checked, ours
    ours = _with_sizes(task, ours, rewritten)
    return checked, _with_training(task, ours, claimed) if task.training else compare_outputs(task, ours)


def verify_recipe(task: Task, ours: Compiled, recipe: Recipe, seed: int) -> tuple[Verification, Compiled]:
    """Return the verdict on a library's approximation and, where it is good, ``ours`` with its figures."""
    kept = ours.kept or ()
    checked, ours = _verify_kept_weights(task, ours, kept, recipe.bound, unfriendly(task.inputs, seed), seed)
    complaints = [weight.complaint for weight in kept if weight.complaint]
    if complaints:
        checked = replace(checked, counterexample=complaints[0])
    return checked, compare_outputs(task, ours) if checked.ok else ours


def _verify_kept_weights(
    task: Task,
    ours: Compiled,
    kept: Sequence[KeptWeight],
    bound: float,
    cases: list[tuple[str, Inputs]],
    seed: int,
    peer: Callable[..., Any] | None = None,
) -> tuple[Verification, Compiled]:
    """Agreement with a model that has the weights that were kept.

    The errors that are reported are from the original.
    """
    standing = replace(task, module=with_kept(task.module, kept)) if kept else task
    checked = verify(standing, ours, seed, bound, cases, peer)
    if not checked.ok or not kept:
        return checked, ours
    largest, relative = _errors(task, ours.call, cases)
    checked = replace(checked, bit_equal=False, max_abs_error=largest, max_relative_error=relative)
    noise = {"weight_sqnr": weight_sqnr(kept), "channel_sqnr": channel_sqnr(kept)}
    metrics = {**ours.metrics, **noise}
    return checked, replace(ours, metrics=metrics, report={**ours.report, "weights": rows(kept)})


def _without_casts(task: Task, rewritten: Rewritten, seed: int) -> Verification:
    """Return the rewrite with float32 in the place of the type that its casts give, held to the original."""
    graph = widened(rewritten.graph, rewritten.approximation.casts)
    module = lower(graph, task.origin, gradients=task.training)
    parameters = parameters_of(module, task.module) if task.training else None
    return verify(task, Compiled(module, 0.0, 0.0, parameters=parameters), seed)


def _autocast(task: Task, dtype: str) -> Callable[..., Any] | None:
    """Return the original under torch's own autocast, which rounds as often as the rewrite.

    ReLUs send gradients elsewhere after any rounding, so those of both are far from float64's.
    """
    if not dtype:
        return None

    def call(*inputs: Tensor) -> Any:
        with torch.autocast(task.device, getattr(torch, dtype)):
            return task.module(*inputs)

    return call


def _kept_weight(module: nn.Module, path: str, scheme_fields: Mapping[str, Any]) -> KeptWeight:
    """Return a weight with the values that our own arithmetic gives it."""
    scheme = Scheme(**{name: value for name, value in scheme_fields.items() if name != "axis"})
    original = _constant(module, path)
    found = quantize(original.detach().double().cpu().numpy(), scheme, scheme_fields["axis"])
    channels = found.shape[found.axis]
    width = math.prod(found.shape) // channels
    return KeptWeight(
        path,
        original,
        torch.from_numpy(found.values),
        scheme.bytes(channels, width),
        found.axis,
        scheme.blocking(channels, width).padding,
    )


def _constant(module: nn.Module, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    found = getattr(module.get_submodule(owner), name)
    assert isinstance(found, Tensor), path
    return found


@torch.no_grad()
def _errors(task: Task, call: Callable[..., Any], cases: list[tuple[str, Inputs]]) -> tuple[float, float]:
    """Return the largest differences from the original in float64, absolute and in norm.

    What the kept values make.
    """
    exact = copy.deepcopy(task.module).double()
    largest, relative = 0.0, 0.0
    for _, case in cases:
        wide = tuple(x.double() if x.is_floating_point() else x for x in case)
        for truth, own in zip(tensors(exact(*wide)), tensors(call(*case)), strict=True):
            error = own.double() - truth
            largest = max(largest, float(error.abs().max()))
            relative = max(relative, float(error.norm()) / (float(truth.norm()) or 1.0))
    return largest, relative


def _with_sizes(task: Task, ours: Compiled, rewritten: Rewritten) -> Compiled:
    """Return bytes before and after."""
    metrics = {
        "model_bytes": float(constant_bytes(rewritten.graph, task.training)),
        "model_bytes_before": float(constant_bytes(task.graph, task.training)),
    }
    report = {**ours.report, "approximation": rewritten.approximation.to_json()}
    return replace(ours, metrics={**ours.metrics, **metrics}, report=report)


def constant_bytes(graph: Graph, training: bool) -> int:
    """Constants, and results computed once, that an op of a call (or the output) reads.

    In training nothing is computed once: parameters stay, and what is made of them is made in every step.
    """
    by_name, live = graph.by_name, graph.live
    once = {node.name for node in graph.nodes if node.once and not training}
    read = {name for node in graph.nodes if node.name in live - once for name in node.inputs}
    return sum(by_name[name].bytes for name in read if by_name[name].kind == CONSTANT or name in once)


def _with_training(task: Task, ours: Compiled, claimed: Approximation) -> Compiled:
    if not claimed.training_steps:
        return ours
    curve = trained_beside(task, ours, claimed.training_steps)
    return replace(
        ours,
        metrics={**ours.metrics, **curve.metrics},
        report={**ours.report, **curve.report},
        series={**ours.series, **curve.series},
    )
