"""What a call may change besides giving results: buffers, parameters, tensors that a module merely holds.

Every side of a comparison (eager, its copy in float64, the rewritten model) starts a call with the same
values, what it wrote is taken as results with names, and then it is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Values = dict[str, Tensor]


def tensors_of(module: nn.Module) -> Values:
    """Return parameters, buffers and plain tensor attributes by their paths, each once.

    Tensors of a library's own kind (quantized ones) are left out: such a kind says itself what it holds.
    """
    found = dict(named_tensors(module))
    plain = (Tensor, nn.Parameter, nn.Buffer)
    return {name: value for name, value in found.items() if type(value) in plain}


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Return parameters, buffers and tensor attributes of any kind by their paths."""
    yield from module.named_parameters()
    yield from module.named_buffers()
    for path, owner in module.named_modules():
        for name, value in vars(owner).items():
            if isinstance(value, Tensor):
                yield f"{path}.{name}" if path else name, value


def tensors_behind(call: Callable[..., Any], module: nn.Module) -> Values:
    """Return the tensors of ``module`` as ``call`` holds them: its own of that name, else the module's."""
    own = tensors_of(call) if isinstance(call, nn.Module) else {}
    theirs = tensors_of(module)
    return {
        name: own[name] if name in own and own[name].shape == value.shape else value
        for name, value in theirs.items()
    }


class HeldState:
    """The tensors behind one side, which stand at ``start`` whenever no call is under way."""

    def __init__(self, tensors: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._start = dict(start)

    @torch.no_grad()
    def put_back(self) -> Values:
        """Return what a call wrote, by name, and put the values from before it back."""
        written = {}
        for name, value in self._tensors.items():
            before = self._start[name].to(value.dtype)
            if not torch.equal(value, before):
                written[name] = value.detach().clone()
                value.copy_(before)
        return written

    @torch.no_grad()
    def go_on(self, written: Mapping[str, Tensor]) -> None:
        """Let the next call start where the last one ended."""
        for name, value in written.items():
            if name in self._tensors:
                self._start[name] = value
                self._tensors[name].copy_(value)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors themselves, as they are when no call is under way."""
        return self._tensors


def snapshot(tensors: Mapping[str, Tensor]) -> Values:
    """Return copies of all of them."""
    return {name: value.detach().clone() for name, value in tensors.items()}
