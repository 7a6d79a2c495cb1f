"""What a backend is given and what it gives back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn

from experiments.compilation.interface import Graph
from experiments.compilation.live.export import NoOneGraph, export, records
from experiments.compilation.live.kept_weights import KeptWeight
from experiments.core.errors import Infeasible, LabError
from experiments.core.progress import Progress, silent
from experiments.core.spec import Series
from experiments.workloads.model import ModelSource

Inputs = tuple[Tensor, ...]


class CompilationFailed(LabError):
    """The backend could not compile the model; its first line says why."""


class OutOfMemory(CompilationFailed):
    """Compiling ran out of the device's memory."""


def unsupported_backend(why: str, backend: str) -> Infeasible:
    """Return a backend that this host cannot offer: a fact about the host, not a failure of the run."""
    return Infeasible(f"unsupported here: {why}", backend)


@dataclass(frozen=True)
class Task:
    """A model on its device with one batch: ``module(*inputs)`` is the output, in training the loss.

    ``file`` is the uploaded file that ``source`` was read from, if any. The graph is exported when it is
    first asked for.
    """

    module: nn.Module
    inputs: Inputs
    device: str
    seed: int = 0
    training: bool = False
    source: ModelSource | None = None
    file: Path | None = None
    progress: Progress = silent

    @cached_property
    def origin(self) -> fx.GraphModule:
        return export(self.module, self.inputs, progress=self.progress)

    @cached_property
    def graph(self) -> Graph:
        return records(self.origin)

    @cached_property
    def whole(self) -> Graph:
        """The graph, or one without nodes where the data decide the control flow.

        A backend may still compile it.
        """
        try:
            return self.graph
        except NoOneGraph:
            return Graph(())


@dataclass(frozen=True)
class Compiled:
    """A callable and what making it cost and gave.

    ``seconds`` and ``cpu_seconds`` are those of compiling (the cold first call where that compiles).
    ``metrics`` are figures by their names of ``core.metrics``, ``report`` JSON for the run's page.
    ``parameters`` are those that gradients of ``call`` end in, where they are not the module's own.
    ``untimed`` says why the time of a call means nothing; then none is taken. ``others`` are batches of other
    sizes, by what to call them, for a callable that takes any: they are verified too. ``kept`` are the
    weights that an approximation computes with; ``call`` is held to a model that has them. ``kept_bytes`` are
    those that making it left on the device; ``uncounted`` says why the bytes of a call are not torch's to
    count.
    """

    call: Callable[..., Any]
    seconds: float
    cpu_seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    parameters: Mapping[str, Tensor] | None = None
    untimed: str = ""
    others: Mapping[str, Inputs] = field(default_factory=dict)
    kept: tuple[KeptWeight, ...] | None = None
    kept_bytes: int = 0
    uncounted: str = ""


@dataclass
class CompilationClock:
    """Wall and processor seconds of a ``with`` block, once it has ended.

    Those of ended child processes (a C++ compiler's) are among the latter.
    """

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def clock_compilation() -> Iterator[CompilationClock]:
    clock = CompilationClock()
    wall, cpu = time.perf_counter(), _processor()
    try:
        yield clock
    finally:
        clock.wall, clock.cpu = time.perf_counter() - wall, _processor() - cpu


def _processor() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
