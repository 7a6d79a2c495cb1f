"""Tensor and sequence parallel layers by DTensor: ``parallelize_module`` on the layers that a plan shards.

A layer's module says where it can be cut, the plan's sharding whether its activations are whole between
layers (all-reduces) or cut along the sequence (all-gathers and reduce-scatters): Shoeybi et al.,
"Megatron-LM", 2019, section 3, and Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", MLSys'23, section 4.2.2. Between layers tensors are plain: each rank's whole or its piece
of the sequence (the last but one dimension).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from experiments.core.errors import BadInput
from experiments.models.model import classification
from experiments.parallel.interface import ParallelPlan, Sharding
from experiments.parallel.interface.shards import WIDTH, input_cut_along, output_cut_along
from experiments.parallel.live.blocks import columns_along, divide_heads, layout_of, styles
from experiments.parallel.live.micro_batch_graph import unwrapped


class Sharded:
    """The layers of ``module`` at ``paths``, cut over ``mesh`` where they stand, as ``plan`` shards them."""

    def __init__(
        self,
        module: nn.Module,
        plan: ParallelPlan,
        layers: tuple[str, ...],
        paths: Iterable[str],
        mesh: DeviceMesh,
    ) -> None:
        self.mesh = mesh
        self._orders: dict[str, tuple[int, Tensor]] = {}
        by_name = {layers[sharding.layer]: sharding for sharding in plan.shardings}
        shared = _tied_parameters(module)
        for path in paths:
            self._shard_layer(path, module.get_submodule(path), by_name[unwrapped(path)])
        _tie(shared, {name for name, sharding in by_name.items() if sharding.parameters > 1})

    def _shard_layer(self, path: str, module: nn.Module, sharding: Sharding) -> None:
        whole = placement(output_cut_along(sharding))
        if isinstance(module, nn.Linear | nn.Embedding):
            parallelize_module(module, self.mesh, _single(module, sharding))
        elif layout := layout_of(module):
            divide_heads(path, module.get_submodule(layout.attention), layout, self.mesh.size())
            if len(layout.makers) == 1:
                self._order_by_rank(f"{path}.{layout.inside[0]}", module.get_submodule(layout.inside[0]))
            parallelize_module(module, self.mesh, styles(module, layout, whole))

    def _order_by_rank(self, path: str, matrix: nn.Module) -> None:
        """Put the columns of one matrix for queries, keys and values in an order in which a rank's share of
        each stands together.
        """
        with torch.no_grad():
            for name, parameter in matrix.named_parameters():
                along = columns_along(matrix, name)
                columns = torch.arange(parameter.shape[along]).view(3, self.mesh.size(), -1)
                order = columns.transpose(0, 1).reshape(-1)
                parameter.copy_(parameter.index_select(along, order.to(parameter.device)))
                self._orders[f"{path}.{name}"] = along, order

    def convert(self, x: Tensor, source: int | None, target: int | None) -> Tensor:
        """``leaves.convert_sharding``; gradients go the other way."""
        given = DTensor.from_local(x, self.mesh, [placement(source)], run_check=False)
        return given.redistribute(placements=[placement(target)]).to_local()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean cross entropy of ``output`` [..., own classes], among torch's loss_parallel."""
        logits = DTensor.from_local(output, self.mesh, [placement(WIDTH)], run_check=False)
        found = classification(logits, target)
        return found.to_local() if isinstance(found, DTensor) else found

    def whole(self, name: str, value: Tensor) -> Tensor:
        """A parameter or its gradient as one process has it. All ranks of the mesh must ask."""
        full = value.full_tensor() if isinstance(value, DTensor) else value
        if name not in self._orders:
            return full
        along, order = self._orders[name]
        return torch.empty_like(full).index_copy_(along, order.to(full.device), full)


def refuse_uncuttable(plan: ParallelPlan, layers: tuple[str, ...], module: nn.Module) -> None:
    """``BadInput`` names a layer that the plan cuts and whose structure is not known here."""
    cut = {layers[sharding.layer] for sharding in plan.shardings}
    for path, part in module.named_modules():
        known = isinstance(part, nn.Linear | nn.Embedding) or layout_of(part) is not None
        if unwrapped(path) in cut and not known and any(True for _ in part.parameters()):
            what = f"{type(part).__name__} {path} is cut"
            raise BadInput(
                what,
                "plan.shardings",
                "a block of the zoo's GPT or BERT, or of transformers' GPT-2 or Llama; a linear layer; an "
                "embedding",
            )


def vocabulary_parallel(tensors: Sharded | None) -> contextlib.AbstractContextManager[Any]:
    """Cut the classes of the loss during passes with layers that are cut.

    torch's loss over cut classes wants its backward pass in there too.
    """
    return contextlib.nullcontext() if tensors is None else loss_parallel()


def placement(along: int | None) -> Placement:
    return Replicate() if along is None else Shard(along)


def _tied_parameters(module: nn.Module) -> list[list[tuple[str, nn.Module, str]]]:
    """Where each parameter that stands in several places stands: path, module, name."""
    places: dict[int, list[tuple[str, nn.Module, str]]] = {}
    for path, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(id(parameter), []).append((path, part, name))
    return [found for found in places.values() if len(found) > 1]


def _tie(shared: list[list[tuple[str, nn.Module, str]]], cut: set[str]) -> None:
    """One parameter again in all its places, which are ``cut`` or whole alike: the one that was cut on this
    rank, if any.
    """
    for places in shared:
        if len({unwrapped(path) in cut for path, _, _ in places}) > 1:
            what = "a tied parameter is cut in one place and whole in another"
            raise BadInput(what, "plan.shardings", "alike")
        found = [getattr(part, name) for _, part, name in places]
        parameter = next((p for p in found if isinstance(p.data, DTensor)), found[0])
        for _, part, name in places:
            setattr(part, name, parameter)


def _single(module: nn.Module, sharding: Sharding) -> ParallelStyle:
    """A layer that is one matrix: by rows (its input is cut), by columns (its output is), or a vocabulary."""
    before, after = placement(input_cut_along(sharding)), placement(output_cut_along(sharding))
    if isinstance(module, nn.Embedding):
        return RowwiseParallel(input_layouts=Replicate(), output_layouts=after)
    if sharding.axis == "row":
        return RowwiseParallel(input_layouts=before, output_layouts=after)
    if sharding.axis == "column":
        return ColwiseParallel(input_layouts=before, output_layouts=after)
    raise BadInput(f"a linear layer is cut along {sharding.axis!r}", "plan.shardings", "row or column")
