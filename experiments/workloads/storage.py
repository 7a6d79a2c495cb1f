"""Steps on disk: one ``.npz`` of plain columns and one JSON header; no pickle."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import Ops, Step, Tensors

FORMAT = "mlsys-step-1"

#: Kinds of numpy types (``dtype.kind``) that the columns of a file may have; all others are whole numbers.
_KINDS = {
    **dict.fromkeys(("ops.seconds", "ops.flops", "ops.bytes_moved", "tensors.sparsity"), "fiu"),
    **dict.fromkeys(("ops.view", "ops.random"), "b"),
}

#: What a broken or hostile file can raise; MemoryError: an array that claims an absurd shape.
_BROKEN = (
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    MemoryError,
    RecursionError,
    zipfile.BadZipFile,
    zlib.error,
)


def _columns(table: Ops | Tensors) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a table in numpy columns and text columns."""
    values = {field.name: getattr(table, field.name) for field in fields(table)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def dumps(step: Step) -> bytes:
    """The bytes of a step file; equal steps give equal bytes."""
    op_arrays, op_texts = _columns(step.ops)
    tensor_arrays, tensor_texts = _columns(step.tensors)
    header = {
        "format": FORMAT,
        "name": step.name,
        "timing": step.timing,
        "timed_on": step.timed_on,
        "facts": dict(step.facts),
        "ops": op_texts,
        "tensors": tensor_texts,
    }
    arrays = {f"ops.{name}": value for name, value in op_arrays.items()}
    arrays |= {f"tensors.{name}": value for name, value in tensor_arrays.items()}
    for name, rows in (("inputs", step.inputs), ("outputs", step.outputs)):
        arrays |= {f"{name}.offsets": rows.offsets, f"{name}.values": rows.values}
    if step.release is not None:
        arrays["release"] = step.release
    text = json.dumps(header, sort_keys=True).encode()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, header=np.frombuffer(text, np.uint8), **arrays)
    return buffer.getvalue()


def save(step: Step, path: Path) -> None:
    path.write_bytes(dumps(step))


def load(file: Path | BinaryIO, name: str = "step file") -> Step:
    """Read a step file; ``BadInput`` when it is not one."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        _check_columns(arrays)
        return _assemble(header, arrays)
    except _BROKEN as error:
        raise BadInput(f"not a step file: {error}", name, FORMAT) from None


def _check_columns(arrays: dict[str, Any]) -> None:
    for name, column in arrays.items():
        kinds = _KINDS.get(name, "iu")
        if column.ndim != 1 or column.dtype.kind not in kinds:
            raise ValueError(f"{name} is {column.ndim}-dimensional {column.dtype}, not a column of numbers")
    for name in ("inputs", "outputs"):
        offsets, values = arrays[f"{name}.offsets"], arrays[f"{name}.values"]
        if not len(offsets) or offsets[0] or offsets[-1] != len(values) or (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{name}.offsets are no rows of {len(values)} values")


def _assemble(header: dict[str, Any], arrays: dict[str, Any]) -> Step:
    if header["format"] != FORMAT:
        raise ValueError(f"format {header['format']!r}")
    ops = Ops(**_tuples(header["ops"]), **_with_prefix(arrays, "ops."))
    tensors = Tensors(**_tuples(header["tensors"]), **_with_prefix(arrays, "tensors."))
    inputs, outputs = (Ragged(**_with_prefix(arrays, f"{name}.")) for name in ("inputs", "outputs"))
    timing, timed_on, facts = header["timing"], header["timed_on"], header["facts"]
    release = arrays.get("release")
    return Step(header["name"], ops, tensors, inputs, outputs, timing, timed_on, facts, release)


def _tuples(texts: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        name: tuple(tuple(v) if isinstance(v, list) else v for v in column) for name, column in texts.items()
    }


def _with_prefix(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
