"""An approximate rewrite held to what it says, and what the approximation costs: bytes, errors, agreement, loss.

Quantized weights first: the rewritten graph must agree with a model that has the weights' quantized values, which
``numerics.quantization`` works out on its own, as closely as any rewrite must. So a wrong axis, scale or zero point is
rejected however coarse the codes are; how far those values are from the original's is then reported, not judged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from experiments.compilation.interface import CONSTANT, Approximation, Graph, Rewritten
from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.batches import Batches
from experiments.compilation.live.training_curve import trained_beside
from experiments.compilation.live.verify import Verification, unfriendly, verify
from experiments.compilation.numerics.quantization import Quantized, Scheme, decibels, quantize
from experiments.models.model import Objective

#: Batches that outputs are compared on, known by their seeds; calibration sees others.
EVALUATED, FIRST_SEED = 8, 100_000
#: Unfriendly inputs that are distributed as calibration's were.
LIKE_CALIBRATION = ("as given", "shuffled")


def judged(task: Task, ours: Compiled, rewritten: Rewritten, seed: int) -> tuple[Verification, Compiled]:
    """The verdict on the rewrite and, where it is good, ``ours`` with the approximation's figures."""
    told = rewritten.approximation
    quantized = {path: _quantized(task.module, path, scheme) for path, scheme in told.weights.items()}
    cases = [
        case for case in unfriendly(task.inputs, seed) if not told.calibration or case[0] in LIKE_CALIBRATION
    ]
    standing = replace(task, module=_with(task.module, quantized)) if quantized else task
    checked = verify(standing, ours, seed, rewritten.bound, cases)
    if not checked.ok:
        return checked, ours
    if quantized:
        largest, relative = _errors(task, ours.call, cases)
        checked = replace(checked, bit_equal=False, max_abs_error=largest, max_relative_error=relative)
    ours = _sized(task, ours, rewritten, quantized)
    return checked, _trained(task, ours, told) if task.training else examined(task, ours)


def _quantized(module: nn.Module, path: str, told: Mapping[str, Any]) -> Quantized:
    scheme = {name: value for name, value in told.items() if name != "axis"}
    values = _constant(module, path).detach().double().cpu().numpy()
    return quantize(values, Scheme(**scheme), told["axis"])


def _constant(module: nn.Module, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    found = getattr(module.get_submodule(owner), name)
    assert isinstance(found, Tensor), path
    return found


@torch.no_grad()
def _with(module: nn.Module, quantized: Mapping[str, Quantized]) -> nn.Module:
    """A copy of the module with the quantized values in the place of its weights."""
    made = copy.deepcopy(module)
    for path, weight in quantized.items():
        _constant(made, path).copy_(torch.from_numpy(weight.values))
    return made


@torch.no_grad()
def _errors(task: Task, call: Callable[..., Any], cases: list[tuple[str, Inputs]]) -> tuple[float, float]:
    """The largest differences from the original in float64, absolute and in norm: what the quantized values make."""
    exact = copy.deepcopy(task.module).double()
    largest, relative = 0.0, 0.0
    for _, case in cases:
        wide = tuple(x.double() if x.is_floating_point() else x for x in case)
        for truth, own in zip(_tensors(exact(*wide)), _tensors(call(*case)), strict=True):
            error = own.double() - truth
            largest = max(largest, float(error.abs().max()))
            relative = max(relative, float(error.norm()) / (float(truth.norm()) or 1.0))
    return largest, relative


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _sized(task: Task, ours: Compiled, rewritten: Rewritten, quantized: Mapping[str, Quantized]) -> Compiled:
    """Bytes before and after, and the noise of each weight."""
    metrics = {
        "model_bytes": float(constant_bytes(rewritten.graph, task.training)),
        "model_bytes_before": float(constant_bytes(task.graph, task.training)),
    }
    rows = [_weight_row(path, _constant(task.module, path), weight) for path, weight in quantized.items()]
    if rows:
        signal, noise = (sum(row[name] for row in rows) for name in ("signal", "noise"))
        metrics["weight_sqnr"] = finite(decibels(signal, noise))
    report = dict(ours.report) | {"weights": rows, "approximation": rewritten.approximation.to_json()}
    return replace(ours, metrics=dict(ours.metrics) | metrics, report=report)


def constant_bytes(graph: Graph, training: bool) -> int:
    """Constants, and results computed once, that an op of a call (or the output) reads. In training nothing is
    computed once: parameters stay, and what is made of them is made in every step.
    """
    by_name, live = graph.by_name, graph.live
    once = {node.name for node in graph.nodes if node.once and not training}
    read = {name for node in graph.nodes if node.name in live - once for name in node.inputs}
    return sum(by_name[name].bytes for name in read if by_name[name].kind == CONSTANT or name in once)


def _weight_row(path: str, original: Tensor, weight: Quantized) -> dict[str, Any]:
    truth = original.detach().double().cpu().numpy()
    signal, noise = float(np.square(truth).sum()), float(np.square(truth - weight.values).sum())
    channels = weight.shape[weight.axis]
    width = math.prod(weight.shape) // channels
    return {
        "weight": path,
        "shape": list(weight.shape),
        "sqnr": finite(decibels(signal, noise)),
        "signal": signal,
        "noise": noise,
        "bytes_before": original.numel() * original.element_size(),
        "bytes": weight.scheme.bytes(channels, width),
        "padding": weight.scheme.blocking(channels, width).padding,
    }


def finite(value: float) -> float:
    """JSON knows no infinity: exact is said as 300 dB."""
    return min(max(value, -300.0), 300.0)


@torch.no_grad()
def examined(task: Task, ours: Compiled) -> Compiled:
    """Outputs beside eager's on batches drawn for this: noise of each, agreement of the largest, loss."""
    source = Batches(task)
    seeds = range(FIRST_SEED + task.seed, FIRST_SEED + task.seed + EVALUATED)
    seen: list[_Outputs] = []
    for seed in seeds:
        batch = source.draw(seed)
        inputs = batch[: source.inputs]
        seen.append(_outputs(task, task.module(*inputs), ours.call(*inputs), batch[source.inputs :]))
    merged = {name: [outputs[name] for outputs in seen] for name in seen[0]}
    metrics = _merged(merged)
    report = dict(ours.report) | {"evaluated_batches": list(seeds)}
    return replace(ours, metrics=dict(ours.metrics) | metrics, report=report)


_Outputs = dict[str, float]


def _outputs(task: Task, plain: Any, own: Any, targets: Inputs) -> _Outputs:
    """One batch: power of signal and noise over all outputs, agreement and losses of the first."""
    pairs = list(zip(_tensors(plain), _tensors(own), strict=True))
    found = {
        "signal": sum(float(base.double().square().sum()) for base, _ in pairs),
        "noise": sum(float((base.double() - mine.double()).square().sum()) for base, mine in pairs),
    }
    base, mine = pairs[0]
    if base.dim() > 1 and base.shape[-1] > 1:
        found["agreement"] = float((base.argmax(-1) == mine.argmax(-1)).double().mean())
    if isinstance(task.module, Objective) and len(targets) == 1:
        found["loss"] = float(task.module.loss(plain, targets[0]))
        found["own_loss"] = float(task.module.loss(own, targets[0]))
    return found


def _merged(rows: Mapping[str, list[float]]) -> dict[str, float]:
    metrics = {"sqnr": finite(decibels(sum(rows["signal"]), sum(rows["noise"])))}
    if "agreement" in rows:
        metrics["top1_agreement"] = float(np.mean(rows["agreement"]))
    if "loss" in rows:
        metrics["loss_increase"] = float(np.mean(rows["own_loss"]) - np.mean(rows["loss"]))
    return metrics


def _trained(task: Task, ours: Compiled, told: Approximation) -> Compiled:
    if not told.training_steps:
        return ours
    curve = trained_beside(task, ours, told.training_steps)
    return replace(
        ours,
        metrics={**ours.metrics, **curve.metrics},
        report={**ours.report, **curve.report},
        series={**ours.series, **curve.series},
    )
