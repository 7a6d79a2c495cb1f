"""Measured times of collectives on a machine, and the link (latency, bandwidth) that explains them best.

Two forms are read: a JSON object ``{"all reduce": [[megabytes, ...], [seconds, ...]], ...}``, and what
NVIDIA's nccl-tests (and RCCL's) print, rows of ``size count type ... time`` in bytes and microseconds. Sizes
are the whole vector's, as ``hardware.collectives`` counts them; in the JSON form a megabyte is 2**20 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.hardware import collectives

LARGEST_FILE = 2**22
TRAFFIC = {
    "all_gather": collectives.one_way_traffic,
    "all_reduce": collectives.ring_all_reduce_traffic,
    "reduce_scatter": collectives.one_way_traffic,
    "all_to_all": collectives.one_way_traffic,
}
#: How nccl-tests' output names what it ran, and which of its columns is the time out of place, from the size
#: on.
_PROGRAMS = {
    "AllGather": "all_gather",
    "AllReduce": "all_reduce",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
}
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+(?:\w+\s+)?(?:-?\d+\s+)?(\d+(?:\.\d+)?)\s+\d+(?:\.\d+)?\s+\d")


@dataclass(frozen=True)
class Measurement:
    """One collective of ``size`` bytes that took ``seconds``."""

    kind: str
    size: float
    seconds: float


@dataclass(frozen=True)
class Fit:
    """Latency and bandwidth, and the median and the largest relative error of what they predict."""

    latency: float
    bandwidth: float
    median_error: float
    largest_error: float


def read_measurements(path: Path) -> list[Measurement]:
    """``BadInput`` for a file in neither form, or without a usable row."""
    if not path.is_file() or path.stat().st_size > LARGEST_FILE:
        raise BadInput("cannot be read", str(path), f"a table of collectives of at most {LARGEST_FILE} bytes")
    data = path.read_bytes()
    rows = _of_json(data, path.name) if data.lstrip()[:1] == b"{" else _of_text(data.decode(errors="replace"))
    for row in rows:
        if not (0 < row.seconds < math.inf and 0 <= row.size < math.inf):
            raise BadInput(f"{row.size:g} bytes in {row.seconds:g} s", path.name, "positive times and sizes")
    if len({row.size for row in rows}) < 2:
        raise BadInput("has fewer than two sizes", path.name, "times of collectives of several sizes")
    return rows


def _of_json(data: bytes, name: str) -> list[Measurement]:
    content = jsonio.loads(data, name)
    found = []
    for title, columns in content.items() if isinstance(content, dict) else ():
        kind = title.replace(" ", "_").replace("-", "_").lower()
        if kind not in TRAFFIC:
            raise BadInput(f"unknown collective {title!r:.80}", name, ", ".join(TRAFFIC))
        found += [Measurement(kind, size * 2**20, seconds) for size, seconds in _pairs(columns, title, name)]
    return found


def _pairs(columns: object, title: str, name: str) -> list[tuple[float, float]]:
    lists = columns if isinstance(columns, list) and len(columns) == 2 else [None, None]
    numbers = [
        column
        for column in lists
        if isinstance(column, list) and all(isinstance(v, int | float) for v in column)
    ]
    if len(numbers) != 2 or len(numbers[0]) != len(numbers[1]):
        raise BadInput(f"{title!r:.80} is no table", name, "two equally long lists: megabytes and seconds")
    return list(zip(*numbers, strict=True))


def _of_text(text: str) -> list[Measurement]:
    """Rows follow a line that names the program or the collective; all-reduce where none does."""
    kind, found = "all_reduce", []
    for line in text.splitlines():
        named = next((ours for theirs, ours in _PROGRAMS.items() if theirs.lower() in line.lower()), None)
        named = named or next(
            (ours for ours in TRAFFIC if f"{ours}_perf" in line.replace("alltoall", "all_to_all")), None
        )
        row = _ROW.match(line)
        if named:
            kind = named
        elif row:
            found.append(Measurement(kind, float(row[1]), float(row[2]) * 1e-6))
    return found


def fit(rows: Sequence[Measurement], ranks: int) -> Fit:
    """Least squares of relative errors of messages x alpha + bytes x beta, neither below zero."""
    from scipy.optimize import nnls  # here, because loading it takes longer than most commands

    traffic = [TRAFFIC[row.kind](ranks, row.size) for row in rows]
    seconds = np.array([row.seconds for row in rows])
    terms = np.array([[float(one.messages), one.sent] for one in traffic]) / seconds[:, None]
    scale = terms.max(axis=0)
    found, _ = nnls(terms / np.where(scale > 0, scale, 1.0), np.ones(len(rows)))
    latency, slope = (float(value) for value in found / scale)
    if slope <= 0:
        raise BadInput("times do not grow with sizes", "table", "larger sizes, which the bandwidth decides")
    errors = np.abs(terms @ (latency, slope) - 1)
    return Fit(latency, 1 / slope, float(np.median(errors)), float(errors.max()))
