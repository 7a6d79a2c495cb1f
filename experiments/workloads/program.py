"""GraphProgram: a model read from an exported graph (ONNX, ``torch.export``), as plain data without torch.

Nodes stand in the order of execution. Their arguments are constants or refer to what the graph is given
(``Value``: an input or another node's output) and what the file stores (``Stored``: a parameter, buffer or
constant).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import BadInput

#: Bytes of one element, by torch's names of the types that a file may hold.
ELEMENT_BYTES: Mapping[str, int] = {
    **{"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
}
FLOATS = ("float64", "float32", "float16", "bfloat16")

#: What a step has where neither the file nor the options say.
USUAL_BATCH, USUAL_SEQUENCE, USUAL_IMAGE = 8, 128, 224


@dataclass(frozen=True)
class Value:
    """The input or the node's output of this name."""

    name: str


@dataclass(frozen=True)
class Stored:
    """The parameter, buffer or constant of this name."""

    name: str


@dataclass(frozen=True)
class DType:
    """An element type as an argument, by torch's name."""

    name: str


@dataclass(frozen=True)
class MemoryFormat:
    """An order of dimensions in memory as an argument, by torch's name."""

    name: str


@dataclass(frozen=True)
class Device:
    """The device that the model is on, as an argument; a file's own is of the machine that made it."""


@dataclass(frozen=True)
class Weight:
    """A dense tensor as a file stores it: little-endian, last dimension fastest.

    Without data it is all zeros.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes = field(repr=False)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class Node:
    """``op`` is the format's own name; ``scope`` the path of the module that the node came from, or empty."""

    op: str
    name: str
    scope: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Input:
    """One tensor of the batch.

    A size that the exporter left open is the name of a symbol; ``high`` > 0 bounds indices, and ``ones``
    marks an input that says which tokens count.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    high: int = 0
    ones: bool = False


@dataclass(frozen=True)
class GraphProgram:
    """A model as the graph that a file exports.

    ``sha256`` is the file's. ``output`` is what the loss is made of, ``outputs`` are all (it alone where the
    file names no others). ``usual`` gives open sizes their values
    at export, ``operators`` the versions of the operator sets. Parameters that share their values are one.
    """

    format: str
    sha256: str
    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...]
    output: str
    parameters: Mapping[str, Weight]
    buffers: Mapping[str, Weight] = field(default_factory=dict)
    constants: Mapping[str, Weight] = field(default_factory=dict)
    usual: Mapping[str, int] = field(default_factory=dict)
    operators: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def given(self, training: bool) -> tuple[str, ...]:
        """Return what a call gives: in training what the loss is made of, else all outputs in their order."""
        return (self.output,) if training or not self.outputs else self.outputs

    @property
    def dtype(self) -> str:
        """The type of most parameters' bytes; float32 where there are none."""
        held: dict[str, int] = {}
        for weight in self.parameters.values():
            held[weight.dtype] = held.get(weight.dtype, 0) + weight.bytes
        return max(held, key=lambda name: held[name], default="float32")

    @property
    def roles(self) -> dict[str, str]:
        """What each open size stands for: ``batch``, ``sequence`` or ``image``.

        ``BadInput`` where that is unclear.
        """
        found: dict[str, str] = {}
        for entry in self.inputs:
            for position, size in enumerate(entry.shape):
                if isinstance(size, str) and size not in found:
                    found[size] = _role(entry, position)
        return found

    @property
    def batch(self) -> int:
        return self._size("batch") or USUAL_BATCH

    @property
    def sequence(self) -> int | None:
        """Tokens per sample; ``None`` where no input is a row of indices."""
        found = self._size("sequence")
        return USUAL_SEQUENCE if found == 0 else found

    @property
    def image(self) -> int | None:
        """Pixels per side; ``None`` where no input is a picture."""
        found = self._size("image")
        return USUAL_IMAGE if found == 0 else found

    def _size(self, role: str) -> int | None:
        """The size that plays ``role`` (0: left open), of the first input that has it."""
        for entry in self.inputs:
            position = _place(entry, role)
            if position is not None:
                size = entry.shape[position]
                return self.usual.get(size, 0) if isinstance(size, str) else size
        return None

    def shapes(self, batch: int, sequence: int, image: int) -> tuple[tuple[int, ...], ...]:
        """The inputs' shapes at these sizes.

        The batch may differ from a fixed one of the file, nothing else may.
        """
        asked = {"batch": batch, "sequence": sequence, "image": image}
        roles, fixed = self.roles, self.batch
        for role in ("sequence", "image"):
            held = getattr(self, role)
            if held is not None and asked[role] != held and role not in roles.values():
                raise BadInput(
                    f"{role} {asked[role]}: the file was exported for {held}", f"options.{role}", str(held)
                )
        return tuple(
            tuple(
                asked[roles[size]]
                if isinstance(size, str)
                else batch
                if not place and size == fixed
                else size
                for place, size in enumerate(entry.shape)
            )
            for entry in self.inputs
        )


def _place(entry: Input, role: str) -> int | None:
    """Which dimension of ``entry`` plays ``role``: [batch, ...], indices [batch, sequence], pictures [batch,
    c, h, w].
    """
    rank, real = len(entry.shape), entry.dtype in FLOATS
    if role == "batch":
        return 0 if rank else None
    if role == "sequence":
        return 1 if rank == 2 and not real else None
    return 3 if rank == 4 and real else None


def _role(entry: Input, position: int) -> str:
    if position == 0:
        return "batch"
    if entry.dtype not in FLOATS and position == 1:
        return "sequence"
    if len(entry.shape) == 4 and position > 1 and entry.dtype in FLOATS:
        return "image"
    if entry.dtype in FLOATS and len(entry.shape) == 3 and position == 1:
        return "sequence"
    what = f"input {entry.name!r:.80} has the open size {entry.shape[position]!r:.40} at dimension {position}"
    raise BadInput(what, "the graph", "open sizes for batch, sequence or image only")
