"""Ranges of activations, seen while the original graph runs on batches of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from experiments.compilation.interface import ObservedRanges, Ref
from experiments.compilation.live.backends.base import Inputs, Task
from experiments.compilation.live.batches import Batches
from experiments.compilation.planning.numerics.calibration import RangeObserver, observer

#: Batches are known by their seeds: the first of calibration, counted from the task's own.
FIRST_SEED = 1_000


class Calibrator:
    """Runs the task's exported graph on batches that only calibration sees."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def ranges(self, refs: Sequence[Ref], rule: str, batches: int, symmetric: bool) -> ObservedRanges:
        observers = {ref: observer(rule, symmetric=symmetric) for ref in refs}
        source = Batches(self._task)
        first = FIRST_SEED + self._task.seed
        seeds = tuple(range(first, first + batches))
        watching = _Watching(self._task.origin, observers)
        for seed in seeds:
            watching.see(source.draw(seed)[: len(self._task.inputs)])
        found = {ref: each.range() for ref, each in observers.items()}
        return ObservedRanges(seeds, {ref: (seen.low, seen.high) for ref, seen in found.items()})


class _Watching(fx.Interpreter):
    """Shows the results that observers ask for to them."""

    def __init__(self, graph_module: fx.GraphModule, observers: Mapping[Ref, RangeObserver]) -> None:
        super().__init__(graph_module)
        self._asked: dict[str, list[tuple[int, RangeObserver]]] = {}
        for ref, each in observers.items():
            self._asked.setdefault(ref.node, []).append((ref.output, each))

    @torch.no_grad()
    def see(self, inputs: Inputs) -> None:
        self.run(*inputs)

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        for output, each in self._asked.get(n.name, ()):
            value = result if isinstance(result, Tensor) else result[output]
            each.observe(value.double().cpu().numpy().astype(np.float64, copy=False))
        return result
