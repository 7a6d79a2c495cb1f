"""A model at many sizes of one axis: batches of any size, graphs counted, times taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from experiments.compilation.live.backends import dynamo
from experiments.compilation.live.backends.base import Inputs, Task
from experiments.compilation.live.timing import Timed, in_turns, mean_seconds
from experiments.core import knobs
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Series
from experiments.models.build import build
from experiments.models.model import InputSpec
from experiments.workloads.model import ModelSource

Sampler = Callable[[int], Inputs]
#: How Dynamo treats sizes, as ``torch.compile`` takes it.
STATIC, AUTOMATIC, SYMBOLIC = False, None, True
#: Seconds that the times of all sizes may take together, and calls of each size.
TIMING_SECONDS, CALLS = 20.0, 5


def sampler(task: Task, axis: str) -> Sampler:
    """Return batches of the task's model, drawn from the seed.

    With any number of entries along ``axis`` (batch or sequence).
    """
    source = task.source
    assert source is not None
    if source.program is not None and source.program.format == "onnx":
        raise BadInput(
            "the graph of an ONNX file is planned for one size", source.name, "a model of any size"
        )
    shapes = {size: _specs(source, axis, size, task.training) for size in (2, 3)}
    if shapes[2] == shapes[3]:
        raise BadInput(f"{source.name} has no {axis}", "knobs.axis", "an axis of the model's inputs")
    dtype = next((x.dtype for x in task.inputs if x.is_floating_point()), torch.float32)

    def batch(size: int) -> Inputs:
        generator = torch.Generator().manual_seed(task.seed + size)
        specs = [_at(two, three, size) for two, three in zip(shapes[2], shapes[3], strict=True)]
        return tuple(spec.sample(dtype, generator).to(task.device) for spec in specs)

    return batch


def _specs(source: ModelSource, axis: str, size: int, training: bool) -> tuple[InputSpec, ...]:
    """Return what the batch looks like; the model itself is built without memory."""
    options = knobs.load(WorkloadOptions, {**asdict(source.options), axis: size}, "options")
    with torch.device("meta"):
        return build(replace(source, options=options), weights=False).batch(training)


def _at(two: InputSpec, three: InputSpec, size: int) -> InputSpec:
    """At another size: a dimension that differs between sizes 2 and 3 is the axis."""
    shape = tuple(
        low if low == high else low + (size - 2) * (high - low)
        for low, high in zip(two.shape, three.shape, strict=True)
    )
    return replace(two, shape=shape)


def others(batch: Sampler, sizes: Sequence[int]) -> dict[str, Inputs]:
    """Return batches of the smallest, the middle and the largest size, to be verified."""
    chosen = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
    return {f"of {size} entries": batch(size) for size in chosen}


def other_batches(task: Task) -> dict[str, Inputs]:
    """Return batches of three sizes; none where the model takes only one."""
    if task.source is None:
        return {}
    try:
        return others(sampler(task, "batch"), (2, 3, 5))
    except BadInput:
        return {}


def graphs_by_size(
    module: nn.Module, batch: Sampler, sizes: Sequence[int], dynamic: bool | None
) -> tuple[list[int], dynamo.DynamoCounts]:
    """Graphs captured so far after a call of each size, in order.

    Dynamo's part of ``torch.compile`` alone: what it captures is run as it is, as nothing is gained by
    generating code that is only counted.
    """
    dynamo.reset()
    call = torch.compile(module, backend="eager", dynamic=dynamic)
    found = []
    with dynamo.limits(len(sizes) + 1), torch.no_grad():
        for size in sizes:
            call(*batch(size))
            found.append(dynamo.read_counts().graphs)
    counts = dynamo.read_counts()
    dynamo.reset()
    return found, counts


def latencies(
    calls: Mapping[str, Callable[..., Any]], batch: Sampler, sizes: Sequence[int], device: str
) -> dict[str, Series]:
    """Median seconds of each call at each size, by the harness of all times.

    Sizes beyond the time for it all are left out.
    """
    started = time.perf_counter()
    done: list[int] = []
    found: dict[str, list[float]] = {name: [] for name in calls}
    for size in sizes:
        if time.perf_counter() - started > TIMING_SECONDS:
            break
        inputs = batch(size)
        timed = {name: _time(call, inputs, device) for name, call in calls.items()}
        rounds = in_turns(timed, size, CALLS, warm_up=1)
        done.append(size)
        for name in calls:
            found[name].append(rounds.sample(name).median)
    return {name: Series("s", done, values, "entries") for name, values in found.items()}


def _time(call: Callable[..., Any], inputs: Inputs, device: str) -> Timed:
    once = torch.no_grad()(lambda: call(*inputs))
    return lambda: mean_seconds(once, device)


def probes(sizes: Sequence[int], buckets: Sequence[int]) -> Iterator[int]:
    """Of each bucket the smallest and the largest size that is padded to it, the bucket itself left out."""
    below = 0
    for bucket in buckets:
        inside = [size for size in sizes if below < size < bucket]
        yield from dict.fromkeys((*inside[:1], *inside[-1:]))
        below = bucket
