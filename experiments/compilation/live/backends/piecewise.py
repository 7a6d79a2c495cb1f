"""A model cut at ops that are better left alone.

The pieces between them are compiled for any size, once each.

Cut at are attention, whose kernels and caches depend on the size (as vLLM cuts), and what needs the host or
gives shapes that depend on data. The cuts themselves run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.fx.passes.split_module import split_module

from experiments.compilation.interface.launches import OBSTACLES
from experiments.compilation.live.backends.base import Inputs
from experiments.compilation.live.export import export

CUTS = ("scaled_dot_product_attention", *OBSTACLES)
#: Entries of the batch that the graph is exported from, with its size left open.
EXPORTED_AT = 5


@dataclass(frozen=True)
class Pieces:
    """``call`` runs the pieces in order; ``compiled`` of them are compiled, ``eager`` are cuts."""

    call: fx.GraphModule
    compiled: int
    eager: tuple[str, ...]


def pieces(
    module: nn.Module, batch: Callable[[int], Inputs], axes: dict[int, tuple[int, ...]], backend: str
) -> Pieces:
    """Return ``axes``: for each input the dimensions whose size is open. ``backend`` compiles the pieces."""
    graph = export(module, batch(EXPORTED_AT), axes)
    graph.graph.set_codegen(fx.graph.CodeGen())
    graph = fx.GraphModule(graph, graph.graph)
    part: dict[fx.Node, int] = {}
    cuts: dict[int, str] = {}
    number = 0
    for node in graph.graph.nodes:
        if node.op == "call_function" and _is_cut(node):
            cuts[number + 1] = str(node.target)
            part[node], number = number + 1, number + 2
        else:
            part[node] = number
    whole = split_module(graph, graph, lambda node: part[node], keep_original_order=True)
    names = [name for name, _ in whole.named_children() if name.startswith("submod_")]
    compiled = [name for name in names if int(name.removeprefix("submod_")) not in cuts]
    for name in compiled:
        setattr(whole, name, torch.compile(getattr(whole, name), backend=backend, dynamic=True))
    return Pieces(whole, len(compiled), tuple(cuts.values()))


def _is_cut(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "").partition(".")[0] in CUTS
