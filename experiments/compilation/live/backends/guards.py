"""``guards``: one compiled model called at many sizes; a guard that fails compiles it again.

All variants are counted with Dynamo alone; the chosen one is compiled by Inductor, with every recompile's
guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import cpu_vec_isa
from torch._inductor.utils import fresh_cache

from experiments.compilation.live.backends import dynamo
from experiments.compilation.live.backends.base import CompilationClock, Compiled, Task, clock_compilation
from experiments.compilation.live.backends.piecewise import pieces
from experiments.compilation.live.backends.sizes import Sampler, latencies, others, sampler
from experiments.compilation.live.calls import in_structure
from experiments.core.errors import BadInput
from experiments.core.spec import Series

STATIC, AUTOMATIC, SYMBOLIC, MARKED, PIECEWISE = "static", "automatic", "symbolic", "marked", "piecewise"
#: How Dynamo is to treat sizes, as ``torch.compile`` takes it.
DYNAMIC: Mapping[str, bool | None] = {STATIC: False, AUTOMATIC: None, SYMBOLIC: True, MARKED: None}
#: Sizes below are always compiled for themselves.
LEAST_SYMBOL = 2

Call = Callable[..., Any]


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Compile the model and run it at several sizes, as ``options`` say.

    Variant, axis, sizes in order, limit of compilations, compare with the others, timed.
    """
    if task.training:
        raise BadInput("sizes are varied in forward passes", "knobs.training", "false")
    sizes, limit, variant = tuple(options["sizes"]), int(options["limit"]), str(options["variant"])
    batch = sampler(task, str(options["axis"]))
    axes = open_axes(batch)
    counted: dict[str, int] = {}
    if options.get("compare", True):
        task.progress(0.35, "counting the graphs of every variant")
        for name in DYNAMIC:
            counted[name] = run_sizes(task, batch, axes, sizes, name, "eager", limit)[1][-1]
    task.progress(0.5, "compiling as sizes come")
    with fresh_cache():
        call, grown, clock, extra = run_sizes(task, batch, axes, sizes, variant, "inductor", limit)
    call = in_structure(call, task) if variant == PIECEWISE else call
    counts = dynamo.read_counts()
    counted[variant] = counts.graphs
    series = {"graphs": Series("graphs", sizes, grown, "entries")}
    if options.get("timed", True):
        task.progress(0.6, "timing each size")
        calls: dict[str, Call] = {"latency": call, "eager_latency": task.module}
        series |= latencies(calls, batch, sizes, task.device)
    report = {"variant": variant, "graphs_of_variants": counted, **extra, **counts.to_json()}
    figures = {"graphs": float(counts.graphs), "recompiles": float(len(counts.recompiles))}
    return Compiled(call, clock.wall, clock.cpu, figures, report, series, others=others(batch, sizes))


def open_axes(batch: Sampler) -> dict[int, tuple[int, ...]]:
    """For each input the dimensions that follow the size."""
    return {
        place: tuple(n for n, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if a != b)
        for place, (x, y) in enumerate(zip(batch(2), batch(3), strict=True))
    }


def run_sizes(
    task: Task,
    batch: Sampler,
    axes: dict[int, tuple[int, ...]],
    sizes: Sequence[int],
    variant: str,
    backend: str,
    limit: int,
) -> tuple[Call, list[int], CompilationClock, dict[str, Any]]:
    """Return the compiled model, the graphs after each size, the time it took, and a report.

    The report is what the variant says of itself.
    """
    cpu_vec_isa.pick_vec_isa()
    dynamo.reset()
    call, extra = _compile_variant(task.module, batch, axes, variant, backend)
    grown = []
    with dynamo.limits(limit), torch.no_grad(), clock_compilation() as clock:
        for size in sizes:
            call(*batch(size))
            grown.append(dynamo.read_counts().graphs)
    return call, grown, clock, extra


def _compile_variant(
    module: nn.Module, batch: Sampler, axes: dict[int, tuple[int, ...]], variant: str, backend: str
) -> tuple[Call, dict[str, Any]]:
    if variant == PIECEWISE:
        found = pieces(module, batch, axes, backend)
        return found.call, {"pieces": found.compiled, "cuts": list(found.eager)}
    call: Call = torch.compile(module, backend=backend, dynamic=DYNAMIC[variant])
    if variant != MARKED:
        return call, {}

    def mark_and_call(*inputs: Tensor) -> Any:
        for place, dimensions in axes.items():
            for dimension in dimensions:
                if inputs[place].shape[dimension] >= LEAST_SYMBOL:
                    torch._dynamo.mark_dynamic(inputs[place], dimension)
        return call(*inputs)

    return mark_and_call, {}
