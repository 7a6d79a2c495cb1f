"""Labels every node of a traced step with its phase and the module that it belongs to.

Forward nodes belong to the module whose ``forward`` runs. A backward node belongs to the module whose forward
made the autograd node that is being evaluated: autograd numbers its nodes in the order of the forward pass,
so the range of numbers that each module made is remembered. Optimizer nodes belong to the module of the
parameter they update.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from experiments.models.parts import strip_wrappers


@dataclass(frozen=True)
class Label:
    """Where a node belongs; ``graph`` numbers the compiled graph that it is of, -1 where it is eager."""

    phase: str
    module: str
    graph: int = -1


@dataclass
class Recorder:
    """An ``Observer`` that fills ``labels`` (by node name) while ``make_fx`` runs the step.

    ``show_life`` is called again and again: tracing a large model takes long.
    """

    show_life: Callable[[], None] = lambda: None
    labels: dict[str, Label] = field(default_factory=dict)
    gradient_storages: list[torch.UntypedStorage] = field(default_factory=list)
    _current: Label = Label("forward", "")
    _last: fx.Node | None = None
    _pass: str = "forward"
    _numbers: list[int] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)
    _graphs: int = 0
    _watching: bool = True

    def _switch(self, phase: str, module: str, graph: int = -1) -> None:
        """Label what was traced since the last switch; what comes now is ``phase`` of ``module``."""
        self.show_life()
        self.finish()
        self._current = Label(phase, module, graph)

    def finish(self) -> None:
        mode = get_proxy_mode()
        assert mode is not None, "a recorder watches a trace"
        graph: fx.Graph = mode.tracer.graph
        node = self._last.next if self._last is not None else next(iter(graph.nodes), None)
        while node is not None and node.op != "root":
            self.labels[node.name] = self._current
            self._last = node
            node = node.next

    @contextlib.contextmanager
    def compiled_graph(self) -> Iterator[None]:
        """What is traced meanwhile is a compiled graph of the phase and module that it runs in."""
        if not self._watching:
            yield
            return
        around = self._current
        self._switch(around.phase, around.module, self._graphs)
        self._graphs += 1
        yield
        self._switch(around.phase, around.module)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """What runs meanwhile is not traced: a part of the model that is being compiled."""
        before, self._watching = self._watching, False
        try:
            yield
        finally:
            self._watching = before

    def phase(self, name: str) -> None:
        self._pass = name
        self._switch(name, "")

    def begin_backward(self) -> None:
        if not self._watching:
            return
        self._pass = "backward"
        self._switch(self._pass, self._current.module)

    def parameter(self, name: str) -> None:
        self._switch("optimizer", _module_of(name.rpartition(".")[0] or "body"))

    @contextlib.contextmanager
    def watch(self, module: nn.Module) -> Iterator[None]:
        """Follow the forward pass of ``module`` and of everything inside it."""
        handles: list[Any] = []
        for path, part in module.named_modules(remove_duplicate=False):
            handles += self._hooks(_module_of(path), part)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hooks(self, path: str, part: nn.Module) -> list[Any]:
        outer: list[str] = []

        def enter(*_: Any) -> None:
            outer.append(self._current.module)
            self._enter(path)

        def leave(*_: Any) -> None:
            self._enter(outer.pop())

        return [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]

    def _enter(self, path: str) -> None:
        if not self._watching:
            return
        self._switch(self._pass, path)
        self._numbers.append(_next_sequence_number())
        self._paths.append(path)

    def loss(self, loss: Tensor) -> None:
        """Follow the backward pass from ``loss``."""
        self._switch("backward", "")
        for node in _autograd_nodes(loss.grad_fn):
            path = self._path_of(node._sequence_nr())
            node.register_prehook(lambda _, path=path: self._switch("backward", path))

    def _path_of(self, number: int) -> str:
        index = bisect.bisect_right(self._numbers, number) - 1
        return self._paths[index] if index >= 0 else ""

    def gradients(self, gradients: Sequence[Tensor | None]) -> None:
        self.gradient_storages = [value.untyped_storage() for value in gradients if value is not None]


def _module_of(path: str) -> str:
    """Return a module's path without wrappers; what the outermost computes itself is "loss"."""
    return strip_wrappers(path) if path else "loss"


def _next_sequence_number() -> int:
    return int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]


def _autograd_nodes(root: Any) -> list[Any]:
    """Every autograd node behind ``root`` but the accumulators of leaves, whose numbers say nothing."""
    seen: dict[int, Any] = {}
    todo = [root]
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        todo.extend(parent for parent, _ in node.next_functions)
    return [node for node in seen.values() if node.name() != "torch::autograd::AccumulateGrad"]
