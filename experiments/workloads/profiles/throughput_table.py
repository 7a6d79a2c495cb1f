"""Throughput by number of GPUs: what each model does per second on 1, 2, 4, ... of them, by global batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

#: GPUs and steps per second on them, GPUs ascending.
Levels = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class ThroughputTables:
    """Steps per second of each model by global batch and number of GPUs.

    ``rows``      by model, by samples of a step over all GPUs: the numbers of GPUs on which it ran.
    ``left_out``  cells of the files without a throughput (empty, nan or 0): the model does not run there.
    """

    speeds: ClassVar[str] = "table"

    name: str
    rows: Mapping[str, Mapping[int, Levels]]
    left_out: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
