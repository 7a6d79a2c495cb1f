"""Graphs that ignore padding, and models that run at the sizes of a few buckets.

A graph exported at a bucket's size gets one more input, how many entries are useful, and looks away from the
others where ``live.padding.padding`` says so. One graph then serves every size of its bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from experiments.compilation.interface.buckets import bucket_of
from experiments.compilation.live.padding.axes import Axes, PaddedAxis
from experiments.compilation.live.padding.padding import Padding

aten = torch.ops.aten
VALID = "valid"


class Masker:
    """Rewrites one exported graph of ``entries`` entries in place; ``valid`` becomes its first input."""

    def __init__(self, module: fx.GraphModule, padding: Padding, entries: int, device: str) -> None:
        self.module, self.padding, self.entries, self.device = module, padding, entries, device
        self.graph = module.graph
        self.by_name = {node.name: node for node in self.graph.nodes}
        self._made: dict[tuple[Any, ...], fx.Node] = {}

    def run(self) -> fx.GraphModule:
        first = next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            self.valid = self.graph.placeholder(VALID)
        self.inputs_end = next(
            node for node in self.graph.nodes if node.op not in ("placeholder", "get_attr")
        )
        for mask in self.padding.masks:
            self._cover(self.by_name[mask.node], mask.argument, mask.axes, mask.neutral)
        for name, axis in self.padding.keys.items():
            self._hide_keys(self.by_name[name], axis)
        for name, times in self.padding.means.items():
            self._rescale(self.by_name[name], times)
        for name, axes in self.padding.statistics.items():
            self._take_statistics(self.by_name[name], axes)
        self.graph.set_codegen(
            fx.graph.CodeGen()
        )  # flat inputs and outputs, not those of the original module
        self.graph.lint()
        return fx.GraphModule(
            self.module, self.graph
        )  # a fresh one, without the export's check of its inputs

    def _op(self, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        """Return the op, once for equal arguments."""
        key = (target, repr(arguments), repr(keywords))
        if key not in self._made:
            self._made[key] = self.graph.call_function(target, arguments, keywords)
        return self._made[key]

    def _useful(self, axes: Axes, rank: int) -> fx.Node:
        """Truth values, true for useful entries; made at the top of the graph, one dimension at a time."""
        found: fx.Node | None = None
        with self.graph.inserting_before(self.inputs_end):
            for place, axis in enumerate(axes):
                if axis is None:
                    continue
                one = self._useful_along(axis, (1,) * (rank - len(axes) + place), rank)
                found = one if found is None else self._op(aten.logical_and.default, found, one)
        assert found is not None
        return found

    def _useful_along(self, axis: PaddedAxis, before: tuple[int, ...], rank: int) -> fx.Node:
        size = axis.size(self.entries)
        entry = self._op(aten.arange.default, size, device=torch.device(self.device), pin_memory=False)
        if axis.inner > 1:
            entry = self._op(aten.floor_divide.default, entry, axis.inner)
        if axis.outer > 1:
            entry = self._op(aten.remainder.Scalar, entry, self.entries)
        useful = self._op(aten.lt.Tensor, entry, self.valid)
        return self._op(aten.view.default, useful, [*before, size, *(1,) * (rank - len(before) - 1)])

    def _cover(self, node: fx.Node, argument: int, axes: Axes, neutral: float) -> None:
        source = node.args[argument]
        assert isinstance(source, fx.Node)
        useful = self._useful(axes, len(axes))
        with self.graph.inserting_before(node):
            covered = self.graph.call_function(aten.where.ScalarOther, (useful, source, neutral))
        node.args = (*node.args[:argument], covered, *node.args[argument + 1 :])

    def _hide_keys(self, node: fx.Node, axis: PaddedAxis) -> None:
        """A mask of keys for the attention; one that is there already must allow the key too."""
        useful = self._useful((None, None, None, axis), 4)
        given = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if isinstance(given, fx.Node):
            truth = given.meta["val"].dtype == torch.bool
            with self.graph.inserting_before(node):
                useful = (
                    self.graph.call_function(aten.logical_and.default, (given, useful))
                    if truth
                    else self.graph.call_function(aten.where.ScalarOther, (useful, given, -torch.inf))
                )
        rest = node.args[4:]
        keywords = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
        node.args, node.kwargs = (*node.args[:3], useful, *rest), keywords

    def _rescale(self, node: fx.Node, times: int) -> None:
        """A mean over all entries becomes one over the useful ones."""
        with self.graph.inserting_after(node):
            factor = self.graph.call_function(aten.reciprocal.default, (self.valid,))
        with self.graph.inserting_after(factor):
            scaled = self.graph.call_function(aten.mul.Tensor, (node, factor))
        with self.graph.inserting_after(scaled):
            whole = self.graph.call_function(aten.mul.Scalar, (scaled, self.entries))
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not scaled)
        for _ in range(times - 1):
            self._rescale_again(whole, factor)

    def _rescale_again(self, node: fx.Node, factor: fx.Node) -> None:
        with self.graph.inserting_after(node):
            scaled = self.graph.call_function(aten.mul.Tensor, (node, factor))
        with self.graph.inserting_after(scaled):
            whole = self.graph.call_function(aten.mul.Scalar, (scaled, self.entries))
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not scaled)

    def _take_statistics(self, node: fx.Node, axes: Axes) -> None:
        """Batch normalization in training by its own definition, over useful entries alone."""
        useful = self._useful(axes, len(axes))
        with self.graph.inserting_before(node):
            made = self.graph.call_function(_normalized, (useful, *node.args))
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)


def _normalized(
    useful: Tensor, x: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    """Ioffe and Szegedy, 2015, algorithm 1.

    Statistics per channel; the running variance is the unbiased one.

    ``useful`` broadcasts to ``x`` [n, channels, ...]; gives what ``_native_batch_norm_legit_functional``
    gives.
    """
    _, momentum, eps = rest[:3]
    over = [place for place in range(x.ndim) if place != 1]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    count = useful.expand(x.shape).sum(over)
    average = torch.where(useful, x, 0).sum(over) / count
    centered = x - average.view(shape)
    squares = torch.where(useful, centered, 0).square().sum(over)
    inverse = torch.rsqrt(squares / count + eps)
    out = centered * inverse.view(shape)
    out = out if weight is None else out * weight.view(shape)
    out = out if bias is None else out + bias.view(shape)
    fresh = (1 - momentum) * mean + momentum * average
    spread = (1 - momentum) * variance + momentum * squares / (count - 1)
    return out, average, inverse, fresh, spread


def padded(x: Tensor, axes: Axes, entries: int, fill: float) -> Tensor:
    """Return ``x`` with its padded dimensions (each the axis itself) filled up to ``entries``."""
    for place, axis in enumerate(axes):
        if axis is not None:
            assert axis == PaddedAxis(), "an input's dimension is the axis itself"
            missing = list(x.shape)
            missing[place] = entries - x.shape[place]
            x = torch.cat([x, x.new_full(missing, fill)], place)
    return x


def useful_part(x: Tensor, axes: Axes, entries: int, valid: int) -> Tensor:
    """Return the useful entries of a result."""
    for place, axis in enumerate(axes):
        if axis is not None:
            apart = x.reshape(*x.shape[:place], axis.outer, entries, axis.inner, *x.shape[place + 1 :])
            x = apart.narrow(place + 1, 0, valid).flatten(place, place + 2)
    return x


def axis_size(inputs: Sequence[Tensor], all_axes: Sequence[Axes]) -> int:
    for x, axes in zip(inputs, all_axes, strict=True):
        for place, axis in enumerate(axes):
            if axis is not None:
                return x.shape[place]
    raise AssertionError("no input has the axis")


@dataclass
class Bucketed:
    """A model called at any size up to the last bucket.

    ``graph_at`` makes the masked graph of a bucket when it is first needed. Results come as a list, in the
    order of the model's outputs.
    """

    buckets: Sequence[int]
    padding: Padding
    device: str
    graph_at: Callable[[int], Callable[..., Any]]
    fill: float = 0.0
    graphs: dict[int, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        all_axes = list(self.padding.inputs.values())
        size = axis_size(inputs, all_axes)
        bucket = bucket_of(size, self.buckets)
        if bucket not in self.graphs:
            self.graphs[bucket] = self.graph_at(bucket)
        fills = [self.fill if x.is_floating_point() else 0.0 for x in inputs]
        whole = [padded(x, axes, bucket, fill) for x, axes, fill in zip(inputs, all_axes, fills, strict=True)]
        valid = torch.tensor(size, device=self.device)
        results = torch.utils._pytree.tree_leaves(self.graphs[bucket](valid, *whole))
        return [
            useful_part(x, axes, bucket, size) for x, axes in zip(results, self.padding.outputs, strict=True)
        ]
