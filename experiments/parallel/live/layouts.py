"""Layouts of a traced graph's tensors on the ranks of a worker: whole on all of them, or sharded along a
dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from experiments.parallel.interface import Sharding
from experiments.parallel.interface.shards import WIDTH, input_cut_along, output_cut_along
from experiments.parallel.live import leaves


def lay_out(graph: fx.Graph, shardings: Mapping[str, Sharding]) -> dict[fx.Node, int]:
    """The dimension along which each node that is not whole is cut.

    ``shardings`` are those of opaque layers by path. What is cut otherwise than its reader wants is converted
    before it. Ops on single values keep their inputs' cut, all others want whole tensors. A loss that is one
    op reads logits that are cut along their classes.
    """
    cut: dict[fx.Node, int] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        inputs = [source for source in node.all_input_nodes if source.op != "get_attr"]
        wanted: int | None
        made: int | None
        sharding = shardings.get(str(node.args[2])) if node.target is leaves.OP else None
        if node.target is leaves.OBJECTIVE:
            inputs, wanted, made = inputs[:1], WIDTH, None
        elif sharding is not None:
            for other in inputs[1:]:
                _convert(graph, node, other, cut.get(other), None)
            inputs, wanted, made = inputs[:1], input_cut_along(sharding), output_cut_along(sharding)
        else:
            wanted = made = _common(node, [cut.get(source) for source in inputs])
        for source in inputs:
            _convert(graph, node, source, cut.get(source), wanted)
        if made is not None:
            cut[node] = made
    return cut


def _common(node: fx.Node, inputs: list[int | None]) -> int | None:
    same = len(set(inputs)) == 1
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return inputs[0] if same and pointwise else None


def _convert(graph: fx.Graph, reader: fx.Node, source: fx.Node, has: int | None, wants: int | None) -> None:
    """Nothing where it is laid out as it should be, or is no tensor."""
    if has == wants or not isinstance(source.meta.get("val"), Tensor):
        return
    with graph.inserting_before(reader):
        between = graph.call_function(leaves.convert_sharding, (source, has, wants))
    between.meta = dict(source.meta, nn_module_stack=reader.meta.get("nn_module_stack"))
    reader.replace_input_with(source, between)
