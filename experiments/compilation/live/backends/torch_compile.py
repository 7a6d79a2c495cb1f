"""``inductor``: the module under ``torch.compile``, with everything that happened on the way.

The first call of all compiles with an empty cache on disk (cold), the second after Dynamo has forgotten
everything but that cache is full (warm): what a restarted process would pay, imports apart. What the warm
call leaves on the device (frozen weights, pools of CUDA graphs) is what the model holds besides its own.
Which vector instructions the processor has is found out beforehand: probing takes seconds, once for a host.
Counts are those of the cold call and of calls on the inputs that verification uses: unfriendly ones and, for
a model compiled for any size, other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException, Unsupported, UserError
from torch._dynamo.utils import counters
from torch._inductor import config, cpu_vec_isa, list_mode_options, metrics
from torch._inductor.utils import fresh_cache

from experiments.compilation.live.backends import dynamo
from experiments.compilation.live.backends.base import (
    CompilationClock,
    CompilationFailed,
    Compiled,
    Inputs,
    Task,
    clock_compilation,
)
from experiments.compilation.live.backends.kernels import FALLBACK, LIBRARY, KernelTable, watch_kernels
from experiments.compilation.live.backends.sizes import other_batches
from experiments.compilation.live.peaks import live_bytes
from experiments.compilation.live.training_step import keep_unchanged
from experiments.compilation.live.unfriendly import unfriendly
from experiments.core.errors import BadInput, Infeasible

#: Options of a mode that are about Triton's kernels and CUDA graphs.
GPU_ONLY = ("triton.", "coordinate_descent")


@dataclass(frozen=True)
class CompilationTrace:
    """What Dynamo and Inductor did when a model was first called, cold and warm.

    ``graphs`` and ``breaks`` are those of one call, ``counts`` those of all calls. ``kernels`` were generated
    by the cold one and ``written`` by all. The warm one found ``hits`` of its graphs in the cache.
    """

    graphs: int
    breaks: tuple[dynamo.Break, ...]
    counts: dynamo.DynamoCounts
    kernels: int
    written: KernelTable
    cold: CompilationClock
    warm: CompilationClock
    hits: int

    def figures(self) -> dict[str, float]:
        return {
            "kernels": self.kernels,
            "library_calls": self.written.count(LIBRARY),
            "fallbacks": self.written.count(FALLBACK),
            "graphs": self.counts.graphs,
            "graph_breaks": sum(bool(one.where) for one in self.breaks) or max(self.graphs - 1, 0),
            "recompiles": len(self.counts.recompiles),
            "warm_compile_time": self.warm.wall,
        }

    def to_json(self) -> dict[str, Any]:
        clocks = {"cold": asdict(self.cold), "warm": asdict(self.warm), "warm_cache_hits": self.hits}
        return {
            **self.counts.to_json(),
            "graphs_of_one_call": self.graphs,
            "breaks": [asdict(row) for row in self.breaks],
            "kernels": self.written.to_json(),
            "first_calls": clocks,
        }


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Return ``options``: mode, dynamic, freezing, fullgraph as ``torch.compile`` and Inductor know them."""
    freezing = bool(options.get("freezing"))
    if freezing and any(parameter.requires_grad for parameter in task.module.parameters()):
        raise BadInput("freezing makes constants of parameters", "knobs.freezing", "false in training")
    others = other_batches(task) if options.get("dynamic") else {}
    cases = [*unfriendly(task.inputs, task.seed), *others.items()]
    with ExitStack() as stack:
        stack.enter_context(keep_unchanged(task.module))
        stack.enter_context(torch._dynamo.config.patch(trace_autograd_ops=True))
        stack.enter_context(torch.set_grad_enabled(task.training))
        graphs, breaks = _explain_breaks(task, options)
        cpu_vec_isa.pick_vec_isa()
        stack.enter_context(fresh_cache())
        stack.enter_context(config.patch(freezing=freezing))
        table = stack.enter_context(watch_kernels())
        with clock_compilation() as cold:
            call = _first_call(task, options)
        kernels = int(metrics.generated_kernel_count)
        for _, inputs in cases:
            _run(task, call, inputs)
        counts = dynamo.read_counts()
        written = KernelTable(list(table.kernels), list(table.emitted), list(table.buffers))
        dynamo.reset()
        keeps = freezing or task.device == "cuda"
        before = live_bytes(task.device) if keeps else 0
        with clock_compilation() as warm:
            call = _first_call(task, options)
        kept = live_bytes(task.device) - before if keeps else 0
        hits = int(counters["inductor"]["fxgraph_cache_hit"])
    seen = CompilationTrace(graphs, breaks, counts, kernels, written, cold, warm, hits)
    report = {**mode_of(task, options), **seen.to_json()}
    return Compiled(call, cold.wall, cold.cpu, seen.figures(), report, others=others, kept_bytes=max(kept, 0))


def mode_of(task: Task, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the mode switches on in Inductor, and what of it does nothing on the task's device."""
    switched = list_mode_options(options.get("mode", "default"))
    idle = [name for name in switched if name.startswith(GPU_ONLY)] if task.device == "cpu" else []
    return {"mode_options": switched, "without_effect": idle}


def _explain_breaks(task: Task, options: Mapping[str, Any]) -> tuple[int, tuple[dynamo.Break, ...]]:
    """Return where ``fullgraph`` allows no break, the compiler itself says so: ``Infeasible``."""
    if options.get("fullgraph"):
        return 1, ()
    return dynamo.breaks(task.module, task.inputs)


def _first_call(task: Task, options: Mapping[str, Any]) -> Callable[..., Any]:
    mode = options.get("mode", "default")
    call: Callable[..., Any] = torch.compile(
        task.module,
        backend="inductor",
        mode=None if mode == "default" else mode,
        dynamic=options.get("dynamic"),
        fullgraph=bool(options.get("fullgraph")),
    )
    try:
        _run(task, call, task.inputs)
    except TorchDynamoException as error:
        if options.get("fullgraph") and isinstance(error, Unsupported | UserError):
            raise Infeasible(f"no whole graph: {dynamo.explanation(error)}", "inductor") from error
        raise CompilationFailed(f"inductor: {dynamo.explanation(error)}") from error
    return call


def _run(task: Task, call: Callable[..., Any], inputs: Inputs) -> None:
    """One call; in training the backward pass too, as it is compiled when it first runs."""
    loss = call(*inputs)
    if task.training:
        loss.backward()
        task.module.zero_grad()
