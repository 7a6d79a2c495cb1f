"""``onnx``: a model exported to ONNX, one file with its weights inside. Parsed, checked and read as data;
nothing runs.

The graph becomes a ``GraphProgram``, which ``experiments.models`` builds as a torch module, so that an ONNX
file is a model like one of the zoo: its whole step is captured, simulated and measured.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from typing import Any

from experiments.core.errors import BadInput, LabError
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.onnx_check import check, check_inferred_shapes, refuse_large
from experiments.readers.onnx_graph import program_of
from experiments.workloads.model import ModelSource

#: Fields of a serialized ModelProto that stand before its graph (onnx.proto), by number, with their wire
#: type.
VERSION, GRAPH = 1, 7
_BEFORE_GRAPH = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2}
LARGEST_VERSION = 64


def _recognizes(head: bytes, name: str) -> bool:
    """A protobuf message that begins as a ModelProto does: the version first, then only its fields up to the
    graph.
    """
    place, first = 0, True
    while place < len(head):
        tag, place = _varint(head, place)
        number, wire = tag >> 3, tag & 7
        if first and number != VERSION:
            return False
        first = False
        if number == GRAPH:
            return wire == 2
        if _BEFORE_GRAPH.get(number) != wire:
            return False
        value, place = _varint(head, place)
        if number == VERSION and not 1 <= value <= LARGEST_VERSION:
            return False
        place += value if wire == 2 else 0
    return False


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A protobuf number and the place behind it; 0 at the end of ``data``."""
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    return 0, len(data)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    model = _parse(data, name)
    refuse_large(model, name)
    model = _inline(model)
    check(model, name)
    program, notes = program_of(model, hashlib.sha256(data).hexdigest(), name)
    sizes = (options.batch or program.batch, options.sequence or program.sequence or 0)
    shapes = program.shapes(*sizes, options.image or program.image or 0)
    check_inferred_shapes(
        model, {entry.name: shape for entry, shape in zip(program.inputs, shapes, strict=True)}, name
    )
    source = ModelSource(PurePath(name).stem, options=options, program=program)
    return Reading(source, assumed=notes)


def _parse(data: bytes, name: str) -> Any:
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise LabError("reading ONNX needs the package onnx, 1.21 or newer") from None
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise BadInput(f"not an ONNX file: {error}", name, "a complete ONNX model") from None


def _inline(model: Any) -> Any:
    """Functions of the file's own put in the place of their calls; ``refuse_large`` has counted what that
    gives.
    """
    if not model.functions:
        return model
    from onnx import inliner

    return inliner.inline_local_functions(model)


READER = Reader("onnx", "model", "a model exported to ONNX, weights inside the file", _recognizes, _read)
