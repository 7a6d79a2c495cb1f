"""``buckets``: the model compiled once for each bucket of sizes, called on batches padded up to theirs.

Before anything is timed, padding is shown not to leak: the masked graphs run with NaN in the padding (another
index where inputs are whole numbers) and their useful results are compared with the unpadded model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._inductor import cpu_vec_isa
from torch._inductor.utils import fresh_cache
from torch.utils._pytree import tree_leaves

from experiments.compilation.interface.buckets import powers_of_two, waste
from experiments.compilation.live.agreement import TOLERANCE
from experiments.compilation.live.backends import dynamo
from experiments.compilation.live.backends.base import CompilationFailed, Compiled, Task, clock_compilation
from experiments.compilation.live.backends.padding import Bucketed, Masker
from experiments.compilation.live.backends.sizes import (
    AUTOMATIC,
    STATIC,
    Sampler,
    graphs_by_size,
    latencies,
    others,
    probes,
    sampler,
)
from experiments.compilation.live.calls import in_structure
from experiments.compilation.live.export import export, records
from experiments.compilation.live.padding.padding import Padding, padding
from experiments.compilation.live.padding.padding_rules import RULES
from experiments.core.errors import BadInput
from experiments.core.spec import Series

#: Sizes of the two graphs that show where the axis is: primes, so that they are hardly ever a model's own
#: sizes.
SMALL, LARGE = 3, 5


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Compile the model for some sizes and pad the others up to them, as ``options`` say.

    Axis, sizes to run in order, buckets (empty: powers of two), compare with the other variants.
    """
    if task.training:
        raise BadInput("padded rows would count in the loss", "knobs.training", "false")
    sizes = tuple(options["sizes"])
    buckets = tuple(options.get("buckets") or powers_of_two(sizes))
    batch = sampler(task, str(options["axis"]))
    task.progress(0.35, "following the padding through the graph")
    plan = plan_padding(task, batch)
    proof = proven(task, batch, plan, sizes, buckets)
    variants = _others(task, batch, sizes) if options.get("compare", True) else {}
    task.progress(0.5, f"compiling {len(buckets)} buckets")
    call, grown, clock = _compile_sizes(task, batch, plan, sizes, buckets)
    spent = waste(sizes, buckets)
    counts = dynamo.read_counts()
    variants["buckets"] = counts.graphs
    series = {"graphs": Series("graphs", sizes, grown, "entries")}
    if options.get("timed", True):
        task.progress(0.6, "timing each size")
        calls: dict[str, Callable[..., Any]] = {"latency": call, "eager_latency": task.module}
        series |= latencies(calls, batch, sizes, task.device)
    report = {
        "buckets": list(buckets),
        "padding": plan.to_json(),
        "proof": proof,
        "graphs": variants,
        "waste": {"useful": spent.useful, "padded": spent.padded, "of_useful": spent.of_useful},
    }
    figures = {
        "graphs": float(counts.graphs),
        "recompiles": float(len(counts.recompiles)),
        "padding_waste": spent.of_useful,
    }
    whole = in_structure(call, task)
    return Compiled(whole, clock.wall, clock.cpu, figures, report, series, others=others(batch, sizes))


def plan_padding(task: Task, batch: Sampler) -> Padding:
    """Return what the padding needs, from graphs at two sizes."""
    small, large = (records(export(task.module, batch(size))) for size in (SMALL, LARGE))
    return padding(small, large, (SMALL, LARGE), RULES)


def masked_at(task: Task, batch: Sampler, plan: Padding) -> Callable[[int], torch.fx.GraphModule]:
    return lambda bucket: Masker(export(task.module, batch(bucket)), plan, bucket, task.device).run()


@torch.no_grad()
def proven(
    task: Task, batch: Sampler, plan: Padding, sizes: Sequence[int], buckets: Sequence[int]
) -> dict[str, Any]:
    """Largest relative difference from the unpadded model with NaN as padding.

    ``CompilationFailed`` where it leaks.
    """
    call = Bucketed(buckets, plan, task.device, masked_at(task, batch, plan), fill=torch.nan)
    worst, seen = 0.0, []
    for size in probes(sizes, buckets):
        inputs = batch(size)
        for number, (ours, truth) in enumerate(
            zip(call(*inputs), tree_leaves(task.module(*inputs)), strict=True)
        ):
            difference = _difference(ours, truth)
            if not difference <= TOLERANCE.get(truth.dtype, 0.0):
                raise CompilationFailed(
                    f"padding leaks into output {number} at size {size}: {difference:.3g} apart"
                )
            worst = max(worst, difference)
        seen.append(size)
    return {"sizes": seen, "fill": "nan", "largest_relative_difference": worst}


def _difference(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """Relative to the largest result; NaN where one leaked."""
    scale = float(truth.abs().max()) if truth.numel() else 0.0
    return float((ours.double() - truth.double()).abs().max()) / (scale or 1.0) if truth.numel() else 0.0


def _others(task: Task, batch: Sampler, sizes: Sequence[int]) -> dict[str, int]:
    """Graphs of the same calls where each size has its own, and where Dynamo makes the size a symbol."""
    task.progress(0.4, "counting the graphs of other variants")
    variants = {"static": STATIC, "automatic": AUTOMATIC}
    return {
        name: graphs_by_size(task.module, batch, sizes, dynamic)[1].graphs
        for name, dynamic in variants.items()
    }


def _compile_sizes(
    task: Task, batch: Sampler, plan: Padding, sizes: Sequence[int], buckets: Sequence[int]
) -> tuple[Bucketed, list[int], Any]:
    """Return every size called once, in the order given: a bucket is compiled when its first size comes."""
    masked = masked_at(task, batch, plan)
    call = Bucketed(buckets, plan, task.device, lambda bucket: torch.compile(masked(bucket), dynamic=False))
    cpu_vec_isa.pick_vec_isa()
    dynamo.reset()
    grown = []
    with torch.no_grad(), fresh_cache(), clock_compilation() as clock:
        for size in sizes:
            call(*batch(size))
            grown.append(dynamo.read_counts().graphs)
    return call, grown, clock
