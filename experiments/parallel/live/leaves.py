"""Layers that stay whole in a traced graph: one op stands for each, and the module itself is called in its
place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.errors import LabError
from experiments.models.model import Objective


@torch.library.custom_op("mlsyslab::layer", mutates_args=())
def layer(x: Tensor, path: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The output [shape] of the layer at ``path``; only traced, never executed."""
    raise LabError(f"layer {path} was left in its graph")


@layer.register_fake
def _(x: Tensor, path: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return x.new_empty(tuple(shape), dtype=dtype)


OP = torch.ops.mlsyslab.layer.default


@torch.library.custom_op("mlsyslab::objective", mutates_args=())
def objective(output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of logits that are cut along their classes; only traced, never executed."""
    raise LabError("a loss was left in its graph")


@objective.register_fake
def _(output: Tensor, target: Tensor) -> Tensor:
    return output.new_empty(())


OBJECTIVE = torch.ops.mlsyslab.objective.default


class Stub(nn.Module):
    """Stands for a layer while its model is traced."""

    def __init__(self, path: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        super().__init__()
        self.path, self.shape, self.dtype = path, list(shape), dtype

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = layer(x, self.path, self.shape, self.dtype)
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
def stubs(module: nn.Module, outputs: Mapping[str, Tensor]) -> Iterator[None]:
    """While this is active, layers of ``module`` are stubs.

    ``outputs`` has their paths and what shapes they give.
    """
    own = {path: module.get_submodule(path) for path in outputs}
    for path, output in outputs.items():
        module.set_submodule(path, Stub(path, output.shape, output.dtype))
    try:
        yield
    finally:
        for path, part in own.items():
            module.set_submodule(path, part)


def outputs_of(module: nn.Module, paths: Sequence[str], example: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """What the layers at ``paths`` return for ``example``, on the meta device: shapes and dtypes alone."""
    found: dict[str, Tensor] = {}

    def keep(path: str) -> Any:
        def hook(part: nn.Module, inputs: Any, output: Any) -> None:
            if not isinstance(output, Tensor) or len(inputs) != 1:
                raise LabError(f"layer {path} does not map one tensor to one")
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
