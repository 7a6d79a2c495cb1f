"""One recipe carried out: export, plan, rewrite or compile, verify, time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from experiments.compilation.interface import Graph, Recipe, violations
from experiments.compilation.live.export import export, records
from experiments.compilation.live.passes import apply
from experiments.compilation.live.timing import Comparison, compare
from experiments.compilation.live.verify import Inputs, Verification, verify
from experiments.core.errors import BadInput, LabError
from experiments.core.progress import Progress
from experiments.models.build import build, chosen
from experiments.models.model import Model
from experiments.workloads.model import ModelSource

Plan = Callable[[Graph], Recipe]


class CompilationFailed(LabError):
    """The backend could not compile the model; its first line says why."""


@dataclass(frozen=True)
class Measured:
    """What carrying out a recipe gave. ``timing`` is ``None`` when the result was wrong: then nothing is timed."""

    recipe: Recipe
    violations: tuple[str, ...]
    device: str
    graph_ops: int
    ops: int
    rewrites: int
    compile_seconds: float
    compile_cpu_seconds: float
    kernels: int | None
    graph_breaks: int | None
    verification: Verification
    timing: Comparison | None


@dataclass(frozen=True)
class Built:
    """A callable made from a recipe and what making it cost."""

    call: Callable[..., Any]
    ops: int
    rewrites: int
    wall: float
    cpu: float
    kernels: int | None = None
    graph_breaks: int | None = None


def carry_out_live(source: ModelSource, plan: Plan, seed: int, progress: Progress) -> Measured:
    """Build the model in evaluation mode on this host's device and carry out what ``plan`` says of its graph."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    progress(0.05, "building the model")
    module, inputs = materialize(source, seed, device)
    progress(0.15, "exporting the graph")
    graph_module = export(module, inputs)
    graph = records(graph_module)
    recipe = plan(graph)
    found = tuple(violations(recipe, graph))
    if found:
        raise BadInput(found[0], "recipe")
    progress(0.3, "compiling" if recipe.backend else "rewriting")
    built = carry_out(recipe, module, graph_module, inputs)
    progress(0.7, "comparing with eager in float64")
    verification = verify(module, built.call, inputs, seed)
    progress(0.8, "timing in turn with eager")
    timing = _timing(built.call, module, inputs, device) if verification.ok else None
    return Measured(
        recipe,
        found,
        device,
        len(graph.ops),
        built.ops,
        built.rewrites,
        built.wall,
        built.cpu,
        built.kernels,
        built.graph_breaks,
        verification,
        timing,
    )


def materialize(source: ModelSource, seed: int, device: str) -> tuple[nn.Module, Inputs]:
    """The module in evaluation mode and one batch, both drawn from ``seed``."""
    torch.manual_seed(seed)
    model: Model = build(source)
    dtype = getattr(torch, chosen(source).dtype)
    generator = torch.Generator().manual_seed(seed)
    inputs = tuple(spec.sample(dtype, generator).to(device) for spec in model.batch(training=False))
    return model.module.eval().to(device=device, dtype=dtype).requires_grad_(False), inputs


def carry_out(recipe: Recipe, module: nn.Module, graph_module: fx.GraphModule, inputs: Inputs) -> Built:
    """The callable that the recipe describes."""
    wall, cpu = time.perf_counter(), time.process_time()
    if recipe.untouched:
        return Built(module, len(records(graph_module).ops), 0, 0.0, 0.0)
    if recipe.backend:
        return _compiled(recipe, module, inputs, len(records(graph_module).ops))
    rewrites = sum(apply(graph_module, step) for step in recipe.passes)
    ops = len(records(graph_module).ops)
    return Built(graph_module, ops, rewrites, time.perf_counter() - wall, time.process_time() - cpu)


@torch.no_grad()
def _compiled(recipe: Recipe, module: nn.Module, inputs: Inputs, ops: int) -> Built:
    """The module under ``torch.compile``; the first call, which compiles, is the compile time.

    The compiler's cache on disk is an empty one: the time is a cold one, and what a killed run left is not met.
    """
    from torch._dynamo.exc import TorchDynamoException
    from torch._dynamo.utils import counters
    from torch._inductor import config, metrics
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
    options = recipe.options
    wall, cpu = time.perf_counter(), time.process_time()
    mode = None if options.get("mode") == "default" else options.get("mode")
    with fresh_cache(), config.patch(freezing=bool(options.get("freezing"))):
        call = torch.compile(module, backend=recipe.backend, mode=mode, dynamic=bool(options.get("dynamic")))
        try:
            call(*inputs)
        except TorchDynamoException as error:
            raise CompilationFailed(f"{recipe.backend}: {str(error).strip().splitlines()[0]}") from error
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    breaks = sum(counters["graph_break"].values())
    return Built(call, ops, 0, wall, cpu, int(metrics.generated_kernel_count), int(breaks))


@torch.no_grad()
def _timing(ours: Callable[..., Any], eager: nn.Module, inputs: Inputs, device: str) -> Comparison:
    def once(call: Callable[..., Any]) -> Callable[[], Any]:
        return torch.no_grad()(lambda: call(*inputs))

    return compare(once(ours), once(eager), device)
