"""How sparse activations really are on this host: the share of zeros in what each forward op writes, seen
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from experiments.profiling.capture import Traced
from experiments.workloads.step import KINDS, PHASES, Floats

ACTIVATION = KINDS.index("activation")
FORWARD = PHASES.index("forward")


class _Seen(fx.Interpreter):
    """Runs the graph once and notes the share of zeros in the first tensor that each wanted node returns."""

    def __init__(self, module: fx.GraphModule, wanted: dict[str, int]) -> None:
        super().__init__(module)
        self.wanted = wanted
        self.shares: dict[int, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        seen = value[0] if isinstance(value, tuple | list) and value else value
        if n.name in self.wanted and isinstance(seen, Tensor) and seen.is_floating_point() and seen.numel():
            self.shares[self.wanted[n.name]] = 1 - int(torch.count_nonzero(seen)) / seen.numel()
        return value


def measure(traced: Traced, inputs: Sequence[Tensor]) -> Floats:
    """The sparsity of each tensor of ``traced.step`` in [0, 1].

    NaN for what is no activation of the forward pass. Runs one step on copies of ``inputs``.
    """
    step = traced.step
    wanted = {
        name: int(step.outputs[op][0])
        for op, name in enumerate(step.ops.name)
        if step.ops.phase[op] == FORWARD and not step.ops.view[op] and len(step.outputs[op])
    }
    wanted = {name: tensor for name, tensor in wanted.items() if step.tensors.kind[tensor] == ACTIVATION}
    run = _Seen(traced.graph_module, wanted)
    with torch.no_grad():
        run.run(*[value.clone() for value in inputs])
    found = np.full(len(step.tensors), np.nan)
    for tensor, share in run.shares.items():
        found[tensor] = share
    return found
