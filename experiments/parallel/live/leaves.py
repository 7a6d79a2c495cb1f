"""Layers that stay whole in a traced graph: one op stands for each, and the module itself is called in its
place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from experiments.core.errors import LabError
from experiments.models.model import Objective


@torch.library.custom_op("mlsyslab::layer", mutates_args=())
def layer(x: Tensor, others: Sequence[Tensor], path: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The output [shape] of the layer at ``path``; only traced, never executed.

    ``others`` is what it reads besides ``x``, the same for all layers: positions, masks.
    """
    raise LabError(f"layer {path} was left in its graph")


@layer.register_fake
def _(x: Tensor, others: Sequence[Tensor], path: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return x.new_empty(tuple(shape), dtype=dtype)


OP = torch.ops.mlsyslab.layer.default
#: Stands for a tensor among the arguments of a layer.
TENSOR = object()


@torch.library.custom_op("mlsyslab::objective", mutates_args=())
def objective(output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of logits that are cut along their classes; only traced, never executed."""
    raise LabError("a loss was left in its graph")


@objective.register_fake
def _(output: Tensor, target: Tensor) -> Tensor:
    return output.new_empty(())


OBJECTIVE = torch.ops.mlsyslab.objective.default


@dataclass(frozen=True)
class LayerCall:
    """How a layer is called: its arguments, flat, with a mark for each tensor."""

    flat: tuple[Any, ...]
    structure: TreeSpec

    @classmethod
    def of(cls, *args: Any, **kwargs: Any) -> tuple[LayerCall, list[Tensor]]:
        """Return the call, and the tensors in it."""
        flat, structure = tree_flatten((args, kwargs))
        tensors = [one for one in flat if isinstance(one, Tensor)]
        return cls(tuple(TENSOR if isinstance(one, Tensor) else one for one in flat), structure), tensors

    def carry_out(self, module: nn.Module, x: Tensor, others: Sequence[Tensor]) -> Any:
        tensors = iter((x, *others))
        flat = [next(tensors) if one is TENSOR else one for one in self.flat]
        args, kwargs = tree_unflatten(flat, self.structure)
        return module(*args, **kwargs)


class Stub(nn.Module):
    """Stands for a layer while its model is traced; how it is called is put into ``calls``."""

    def __init__(self, path: str, output: Tensor, calls: dict[str, LayerCall]) -> None:
        super().__init__()
        self.path, self.shape, self.dtype = path, list(output.shape), output.dtype
        self._calls = calls

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self._calls[self.path], (x, *others) = LayerCall.of(*args, **kwargs)
        output: Tensor = layer(x, others, self.path, self.shape, self.dtype)
        return output


@contextlib.contextmanager
def stub_objective(module: Objective) -> Iterator[None]:
    """While this is active, the loss of an ``Objective`` is one op."""
    own = module._loss
    module._loss = objective
    try:
        yield
    finally:
        module._loss = own


@contextlib.contextmanager
def stubs(module: nn.Module, outputs: Mapping[str, Tensor]) -> Iterator[dict[str, LayerCall]]:
    """While this is active, layers of ``module`` are stubs, and how each is called is kept.

    ``outputs`` has their paths and what shapes they give.
    """
    calls: dict[str, LayerCall] = {}
    own = {path: module.get_submodule(path) for path in outputs}
    for path, output in outputs.items():
        module.set_submodule(path, Stub(path, output, calls))
    try:
        yield calls
    finally:
        for path, part in own.items():
            module.set_submodule(path, part)


def outputs_of(module: nn.Module, paths: Sequence[str], example: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What the layers at ``paths`` return for ``example``, on the meta device: shapes and dtypes alone."""
    found: dict[str, Tensor] = {}

    def keep(path: str) -> Any:
        def hook(part: nn.Module, inputs: Any, output: Any) -> None:
            if not isinstance(output, Tensor) or not inputs:
                raise LabError(f"layer {path} does not map a tensor to one")
            found[path] = output

        return hook

    hooks = [module.get_submodule(path).register_forward_hook(keep(path)) for path in paths]
    values = {name: value.to("meta") for name, value in (*module.named_parameters(), *module.named_buffers())}
    try:
        torch.func.functional_call(module, values, tuple(value.to("meta") for value in example))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def convert_sharding(x: Tensor, source: int | None, target: int | None) -> Tensor:
    """``x``, cut along ``source`` of its dimensions, cut along ``target`` instead.

    ``None``: whole on every rank. Stands in a traced graph; ``tensor.convert`` carries it out.
    """
    raise LabError("a conversion was left in its graph")
