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
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from experiments.core.errors import BadInput
from experiments.models.encoder import EncoderBlock
from experiments.models.gpt import Block
from experiments.models.model import classification
from experiments.parallel.interface import ParallelPlan, Sharding
from experiments.parallel.interface.shards import WIDTH, input_cut_along, output_cut_along
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
        self._rows: dict[str, Tensor] = {}
        by_name = {layers[sharding.layer]: sharding for sharding in plan.shardings}
        shared = _tied_parameters(module)
        for path in paths:
            self._shard_layer(path, module.get_submodule(path), by_name[unwrapped(path)])
        _tie(shared, {name for name, sharding in by_name.items() if sharding.parameters > 1})

    def _shard_layer(self, path: str, module: nn.Module, sharding: Sharding) -> None:
        whole = placement(output_cut_along(sharding))
        if isinstance(module, Block):
            self._heads(path, module.attention, fused="qkv")
            parallelize_module(module, self.mesh, _gpt_block(whole))
        elif isinstance(module, EncoderBlock):
            self._heads(path, module.attention)
            parallelize_module(module, self.mesh, _encoder_block(whole))
        elif isinstance(module, nn.Linear | nn.Embedding):
            parallelize_module(module, self.mesh, _single(module, sharding))

    def _heads(self, path: str, attention: Any, fused: str | None = None) -> None:
        """Each rank computes its own heads. Where one matrix makes queries, keys and values, its rows are put
        in an order in which a rank's share of each stands together.
        """
        ranks = self.mesh.size()
        if attention.heads % ranks:
            raise BadInput(f"{attention.heads} heads over {ranks} devices", path, "a divisor of the heads")
        attention.heads //= ranks
        if fused is None:
            return
        matrix = getattr(attention, fused)
        rows = torch.arange(matrix.out_features).view(3, ranks, -1).transpose(0, 1).reshape(-1)
        with torch.no_grad():
            for name, parameter in matrix.named_parameters():
                parameter.copy_(parameter[rows.to(parameter.device)])
                self._rows[f"{path}.attention.{fused}.{name}"] = rows

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
        if name not in self._rows:
            return full
        return torch.empty_like(full).index_copy_(0, self._rows[name].to(full.device), full)


def refuse_uncuttable(plan: ParallelPlan, layers: tuple[str, ...], module: nn.Module) -> None:
    """``BadInput`` names a layer that the plan cuts and whose structure is not known here."""
    cut = {layers[sharding.layer] for sharding in plan.shardings}
    for path, part in module.named_modules():
        known = isinstance(part, Block | EncoderBlock | nn.Linear | nn.Embedding)
        if unwrapped(path) in cut and not known and any(True for _ in part.parameters()):
            what = f"{type(part).__name__} {path} is cut"
            raise BadInput(
                what, "plan.shardings", "a block of the zoo's GPT or BERT, a linear layer, an embedding"
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


def _gpt_block(whole: Placement) -> dict[str, ParallelStyle]:
    return {
        **_norms(whole),
        **_attention(whole, ("qkv",)),
        "expand": ColwiseParallel(input_layouts=whole),
        "contract": RowwiseParallel(output_layouts=whole),
    }


def _encoder_block(whole: Placement) -> dict[str, ParallelStyle]:
    return {
        **_norms(whole),
        **_attention(whole, ("query", "key", "value")),
        "feed.0": ColwiseParallel(input_layouts=whole),
        "feed.2": RowwiseParallel(output_layouts=whole),
    }


def _norms(whole: Placement) -> dict[str, ParallelStyle]:
    """On pieces of a sequence a norm's gradients are parts of sums; on whole sequences nothing is
    to be done.
    """
    if whole == Replicate():
        return {}
    return {name: SequenceParallel(use_local_output=True) for name in ("norm1", "norm2")}


def _attention(whole: Placement, makers: tuple[str, ...]) -> dict[str, ParallelStyle]:
    """Gathered once for all that reads it."""
    gathered = PrepareModuleInput(
        input_layouts=whole, desired_input_layouts=Replicate(), use_local_output=False
    )
    return {
        "attention": gathered,
        **{f"attention.{name}": ColwiseParallel() for name in makers},
        "attention.project": RowwiseParallel(output_layouts=whole),
    }


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
