"""Modules of exported graphs: what the graph of a file becomes, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.workloads.program import Device, DType, GraphProgram, MemoryFormat, Stored, Value, Weight

#: What torch raises on arguments that do not fit an op.
MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Mode(NamedTuple):
    """How a model runs now: ``real`` is the type of its real numbers, which the file has as ``stored``."""

    training: bool
    stored: str
    real: torch.dtype
    device: torch.device = torch.device("cpu")

    def dtype(self, wanted: str) -> torch.dtype:
        if wanted == self.stored:
            return self.real
        found: torch.dtype = getattr(torch, wanted)
        return found


@dataclass(frozen=True)
class Now:
    """Stands for the ``Mode`` in a call's arguments, or for one field of it."""

    field: str = ""


@dataclass(frozen=True)
class Call:
    """One node to carry out: ``function(*arguments, **keywords)`` inside the module of path ``scope``.

    ``op`` and ``attributes`` are the file's. Arguments are plain values, ``Value``, ``Stored``, ``DType`` and
    ``Now``, also inside lists. An output that nobody reads has an empty name.
    """

    function: Callable[..., Any]
    name: str
    scope: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    op: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """The calls of a graph at given shapes and the constants that they read.

    ``outputs`` are what comes out by name, ``output_shape`` is that of what the loss is made of.
    """

    calls: tuple[Call, ...]
    constants: Mapping[str, Weight]
    output_shape: tuple[int, ...]
    outputs: tuple[str, ...]


class Scope(nn.Module):
    """A module of the original model, of which only the path and the tensors are left.

    It runs the function that it is given.
    """

    def forward(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)


class Exported(Scope):
    """A graph as a module tree: tensors at their paths, each node run inside the module that it came from.

    ``weights=False`` leaves the tensors uninitialized (for fake ones). ``forward(*batch)`` is the output of
    the plan, or all of them where it has several.
    """

    def __init__(self, program: GraphProgram, plan: Planned, weights: bool) -> None:
        super().__init__()
        self._calls, self._program_inputs = plan.calls, program.inputs
        self._outputs, self._file_dtype = plan.outputs, program.dtype
        self._paths: dict[str, tuple[str, ...]] = {}
        self._scopes = {call.scope: self._scope(call.scope.split(".")) for call in self._calls}
        groups = (program.parameters, program.buffers, plan.constants)
        for group in groups:
            for name, weight in group.items():
                trains = group is program.parameters and "float" in weight.dtype
                self._keep(name, _tensor(weight, weights), trains)

    def _scope(self, path: Sequence[str]) -> tuple[str, ...]:
        """The path of the module for ``path``, made where it is not there yet."""
        owner: nn.Module = self
        found: list[str] = []
        for part in filter(None, path):
            name = _name(part)
            while hasattr(owner, name) and name not in owner._modules:
                name += "_"  # torch's own attribute, or a tensor
            if name not in owner._modules:
                owner.add_module(name, Scope())
            owner = owner._modules[name] or owner
            found.append(name)
        return tuple(found)

    def _keep(self, name: str, value: Tensor, trains: bool) -> None:
        *path, last = name.split(".")
        place = self._scope(path)
        owner = _at(self, place)
        last = _name(last)
        while hasattr(owner, last):
            last += "_"
        if trains:
            owner.register_parameter(last, nn.Parameter(value))
        else:
            owner.register_buffer(last, value)
        self._paths[name] = (*place, last)

    def mode(self) -> Mode:
        kept = next((value for value in self.parameters() if value.is_floating_point()), None)
        if kept is None:
            return Mode(self.training, self._file_dtype, getattr(torch, self._file_dtype))
        return Mode(self.training, self._file_dtype, kept.dtype, kept.device)

    def stored_tensors(self) -> dict[str, Tensor]:
        """Parameters, buffers and constants by the file's names, as they are now."""
        return {name: _at(self, path) for name, path in self._paths.items()}

    def forward(self, *batch: Any, **_: Any) -> Any:
        mode = self.mode()
        stored, held = self.stored_tensors(), self._inputs(batch)
        for call in self._calls:
            arguments = [fill(argument, held, stored, mode) for argument in call.arguments]
            keywords = {name: fill(value, held, stored, mode) for name, value in call.keywords.items()}
            place = self._scopes[call.scope]
            inside = _at(self, place) if place else super().forward
            result = inside(call.function, *arguments, **keywords)
            several = result if isinstance(result, tuple | list) else (result,)
            held.update(pair for pair in zip(call.outputs, several, strict=False) if pair[0])
        found = tuple(held[name] if name in held else stored[name] for name in self._outputs)
        return found if len(found) > 1 else found[0]

    def _inputs(self, batch: Sequence[Tensor]) -> dict[str, Any]:
        """A batch has real numbers and int64 only; the graph may want other whole numbers or truth values."""
        found: dict[str, Any] = {}
        for entry, value in zip(self._program_inputs, batch, strict=True):
            wanted = getattr(torch, entry.dtype)
            found[entry.name] = (
                value if value.is_floating_point() or value.dtype == wanted else value.to(wanted)
            )
        return found


def _at(module: nn.Module, path: Sequence[str]) -> Any:
    found: Any = module
    for name in path:
        found = getattr(found, name)
    return found


def _name(part: str) -> str:
    """A part of a path as torch takes it."""
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in part[:80]) or "_"


def fill(argument: Any, held: Mapping[str, Any], stored: Mapping[str, Tensor], mode: Mode) -> Any:
    """``argument`` with what it stands for."""
    if isinstance(argument, Value):
        return held[argument.name]
    if isinstance(argument, Stored):
        return stored[argument.name]
    if isinstance(argument, DType):
        return mode.dtype(argument.name)
    if isinstance(argument, MemoryFormat):
        return getattr(torch, argument.name)
    if isinstance(argument, Device):
        return mode.device
    if isinstance(argument, Now):
        return getattr(mode, argument.field) if argument.field else mode
    if isinstance(argument, list):
        return [fill(entry, held, stored, mode) for entry in argument]
    return argument


def _tensor(weight: Weight, weights: bool) -> Tensor:
    dtype = getattr(torch, weight.dtype)
    if not weights:
        return torch.empty(weight.shape, dtype=dtype)
    if not weight.data:
        return torch.zeros(weight.shape, dtype=dtype)
    return torch.frombuffer(bytearray(weight.data), dtype=dtype).reshape(weight.shape)


def run_one(call: Call, arguments: Sequence[Any], keywords: Mapping[str, Any], where: str) -> Any:
    """``call`` on these arguments; a misfit is bad input that names the node."""
    try:
        return call.function(*arguments, **keywords)
    except MISFITS as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"cannot be carried out: {text:.200}", where, "a graph that torch can run") from error
