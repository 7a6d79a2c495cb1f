"""``cuda_graph``: the model's kernels captured by ``torch.cuda.graph`` and replayed.

A replay reads and writes the addresses that were captured. So inputs are copied into static buffers, results
are copied out, and parameters must stay where they are: assigning others after the capture is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from experiments.compilation.interface.launches import obstacles
from experiments.compilation.live.backends.base import (
    CompilationFailed,
    Compiled,
    Inputs,
    Task,
    clock_compilation,
    unsupported_backend,
)
from experiments.compilation.live.peaks import live_bytes
from experiments.compilation.live.unfriendly import unfriendly
from experiments.core.errors import BadInput, Infeasible

#: What tells inputs apart that need a graph of their own.
Key = tuple[tuple[Any, ...], ...]


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    """Return ``options``: graphs, warm_up, clone.

    ``Infeasible`` names the first op that cannot be captured.
    """
    if not torch.cuda.is_available():
        raise unsupported_backend("CUDA graphs need a GPU", "cuda_graph")
    if task.training:
        raise BadInput("forward passes are captured", "knobs.training", "false")
    found = obstacles(task.graph, task.device)
    if found:
        raise Infeasible(f"cannot be captured: {found[0]}", "cuda_graph")
    call = Replayed(task.module, options["graphs"], options["warm_up"], options["clone"])
    before = live_bytes(task.device)
    with torch.no_grad():
        with clock_compilation() as clock:
            call(*task.inputs)
            torch.cuda.synchronize()
        kept = live_bytes(task.device) - before
        for _, inputs in unfriendly(task.inputs, task.seed):
            call(*inputs)
    report = {"counts": call.counts, "clone": call.clone}
    graphs = {"graphs": float(call.counts["captures"])}
    return Compiled(call, clock.wall, clock.cpu, graphs, report, kept_bytes=max(kept, 0))


@dataclass(frozen=True)
class Captured:
    """A graph with the buffers that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    outputs: Any


class Replayed:
    """A callable that captures each new combination of inputs and replays known ones.

    It keeps up to ``limit`` of them.

    ``counts`` goes on counting while it is called: captures, replays, misses (inputs not seen before), eager
    calls (misses beyond the limit) and the bytes that captures took from the device.
    """

    def __init__(self, module: Callable[..., Any], limit: int, warm_up: int, clone: bool) -> None:
        self.module, self.limit, self.warm_up, self.clone = module, limit, warm_up, clone
        self.counts = dict.fromkeys(("captures", "replays", "misses", "eager_calls", "pool_bytes"), 0)
        self._graphs: dict[Key, Captured] = {}
        self._pool: Any = None

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> Any:
        key = tuple((tuple(x.shape), x.stride(), x.dtype, x.device) for x in inputs)
        if key not in self._graphs:
            self.counts["misses"] += 1
            if len(self._graphs) >= self.limit:
                self.counts["eager_calls"] += 1
                return self.module(*inputs)
            self._graphs[key] = self._capture(inputs)
        known = self._graphs[key]
        for static, given in zip(known.inputs, inputs, strict=True):
            static.copy_(given)
        known.graph.replay()
        self.counts["replays"] += 1
        return pytree.tree_map_only(Tensor, Tensor.clone, known.outputs) if self.clone else known.outputs

    def _capture(self, inputs: Inputs) -> Captured:
        static = tuple(
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in inputs
        )
        for buffer, given in zip(static, inputs, strict=True):
            buffer.copy_(given)
        self._warm(static)
        before = torch.cuda.memory_reserved()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = self.module(*static)
        except RuntimeError as error:
            raise CompilationFailed(f"cuda_graph: {str(error).strip().splitlines()[0]}") from error
        self._pool = self._pool or graph.pool()
        self.counts["captures"] += 1
        self.counts["pool_bytes"] += torch.cuda.memory_reserved() - before
        return Captured(graph, static, outputs)

    def _warm(self, static: Inputs) -> None:
        """On a side stream, so that what libraries set up at their first call is not captured."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.warm_up):
                self.module(*static)
        torch.cuda.current_stream().wait_stream(stream)
