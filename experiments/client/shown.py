"""Tables and pictures of a program as a log has them. Standard library alone: arrays and frames are asked for
what they have.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.client.server import LabError

MOST_ROWS, MOST_COLUMNS, LARGEST_PICTURE = 1000, 50, 2**19
#: By how many values a point has: PNG's number of it.
COLOR_TYPES: Mapping[int, int] = {1: 0, 3: 2, 4: 6}


def plain_table(rows: Any, columns: Sequence[str] | None) -> tuple[list[str], list[list[Any]]]:
    """Names of columns and rows of plain values."""
    if hasattr(rows, "columns") and hasattr(rows, "values"):  # a DataFrame
        names, told = list(rows.columns), rows.values.tolist()
    else:
        told = list(rows)
        if columns is None and told and all(isinstance(row, Mapping) for row in told):
            names = list(dict.fromkeys(name for row in told for name in row))
            told = [[row.get(name) for name in names] for row in told]
        else:
            names = list(columns or ())
    if not 0 < len(names) <= MOST_COLUMNS or len(told) > MOST_ROWS:
        what = f"{len(told)} rows of {len(names)} columns"
        raise LabError(f"{what} are no table", f"up to {MOST_ROWS} rows of 1 to {MOST_COLUMNS} columns")
    return [str(name) for name in names], [[_plain(value) for value in row] for row in told]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "item"):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def picture_bytes(image: Any) -> bytes:
    """The bytes of a picture's file; an array as PNG."""
    if isinstance(image, bytes | bytearray):
        data = bytes(image)
    elif isinstance(image, str | Path):
        data = Path(image).read_bytes()
    else:
        data = _png(image.tolist() if hasattr(image, "tolist") else image)
    if len(data) > LARGEST_PICTURE:
        raise LabError(f"a picture of {len(data):,} bytes is too large", f"at most {LARGEST_PICTURE:,}")
    return data


def _png(rows: Sequence[Sequence[Any]]) -> bytes:
    """A PNG of rows of points: numbers, or three or four of them each."""
    if not rows or not rows[0]:
        raise LabError("an empty picture", "an array of rows of points")
    points = [[list(point) if isinstance(point, list | tuple) else [point] for point in row] for row in rows]
    depth, width = len(points[0][0]), len(points[0])
    if depth not in COLOR_TYPES or any(len(row) != width for row in points):
        raise LabError("no array of a picture", "rows of as many points, of one, three or four values")
    values = [value for row in points for point in row for value in point]
    if len(values) != len(rows) * width * depth:
        raise LabError("points differ in their values", "one, three or four values of each")
    scale = 255 if all(isinstance(value, float) for value in values) else 1
    flat = bytes(min(255, max(0, round(value * scale))) for value in values)
    lines = (flat[start : start + width * depth] for start in range(0, len(flat), width * depth))
    body = b"".join(b"\0" + line for line in lines)
    head = struct.pack(">IIBBBBB", width, len(rows), 8, COLOR_TYPES[depth], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(body)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(name, data) for name, data in parts)


def _part(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
