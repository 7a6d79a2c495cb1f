"""Weights and constants of an exported program: raw bytes and what they are, as its configurations say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from experiments.core.errors import BadInput
from experiments.readers.pt2_archive import Archive
from experiments.workloads.program import ELEMENT_BYTES, Weight

#: ScalarType of the archive's schema (its own numbers, not c10's), in torch's names.
DTYPES = {
    **{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 12: "bool"},
    **{6: "float16", 7: "float32", 8: "float64", 13: "bfloat16"},
}
STRIDED = 7
LARGEST_SIZE = 1 << 40
MOST_DIMENSIONS = 8


def stored_tensors(archive: Archive, path: str, prefix: str) -> dict[str, Weight]:
    """Tensors by name; names that share their bytes and shape give one and the same ``Weight``."""
    content = archive.json(path)
    where = f"{archive.name}: {path}"
    entries = content.get("config") if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise BadInput("no 'config' of names", where, 'an object {"config": {...}}')
    found: dict[str, Weight] = {}
    once: dict[str, Weight] = {}
    for name, entry in entries.items():
        key = repr(entry)
        if key not in once:
            once[key] = _weight(archive, path, prefix, entry, f"{where}, {name!r:.80}")
        found[name] = once[key]
    return found


def _weight(archive: Archive, path: str, prefix: str, entry: Any, where: str) -> Weight:
    if not isinstance(entry, dict) or not isinstance(entry.get("path_name"), str):
        raise BadInput(f"{entry!r:.80}", where, "an object with path_name and tensor_meta")
    if entry.get("use_pickle") is not False:
        raise BadInput("is a pickle (use_pickle)", where, "raw numbers: nothing pickled is loaded")
    if not re.fullmatch(prefix + r"\d{1,6}", entry["path_name"]):
        raise BadInput(f"{entry['path_name']!r:.80} is of no known kind", where, f"{prefix}N")
    meta = entry.get("tensor_meta") or {}
    dtype, shape = dtype_of(meta, where), sizes_of(meta, "sizes", where)
    strides = sizes_of(meta, "strides", where)
    offset = _whole(meta.get("storage_offset"), f"{where}.storage_offset")
    if meta.get("layout") != STRIDED or len(strides) != len(shape):
        raise BadInput("is not a dense tensor", where, "strided layout")
    data = archive.bytes(path.rpartition("/")[0] + "/" + entry["path_name"])
    return Weight(dtype, shape, dense(data, dtype, shape, strides, offset, where))


def dense(
    data: bytes, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, where: str
) -> bytes:
    """The elements in order, out of a storage of which they may be a part.

    No data at all stands for zeros.
    """
    width = ELEMENT_BYTES[dtype]
    if not data or 0 in shape:
        return b""
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if (last + 1) * width > len(data) or math.prod(shape) * width > len(data):
        raise BadInput(
            f"{len(data)} bytes for shape {list(shape)}", where, f"at least {(last + 1) * width} bytes"
        )
    if len(data) == math.prod(shape) * width and strides == _plain_strides(shape):
        return data
    start = np.frombuffer(data, f"V{width}", offset=offset * width, count=len(data) // width - offset)
    view = as_strided(start, shape, [stride * width for stride in strides], writeable=False)
    return np.ascontiguousarray(view).tobytes()


def _plain_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def dtype_of(meta: Any, where: str) -> str:
    number = meta.get("dtype") if isinstance(meta, dict) else None
    if not isinstance(number, int) or number not in DTYPES:
        raise BadInput(f"dtype {number!r:.40}", where, "one of " + ", ".join(DTYPES.values()))
    return DTYPES[number]


def sizes_of(meta: Mapping[str, Any], field: str, where: str) -> tuple[int, ...]:
    """Fixed sizes; those of a stored tensor always are."""
    entries = meta.get(field)
    if not isinstance(entries, list) or len(entries) > MOST_DIMENSIONS:
        raise BadInput(f"{field} {entries!r:.80}", where, f"a list of at most {MOST_DIMENSIONS} sizes")
    return tuple(_whole(entry, f"{where}.{field}") for entry in entries)


def _whole(entry: Any, where: str) -> int:
    value = entry.get("as_int") if isinstance(entry, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_SIZE:
        raise BadInput(f"{entry!r:.80} is no size", where, f"a whole number from 0 to {LARGEST_SIZE}")
    return value
