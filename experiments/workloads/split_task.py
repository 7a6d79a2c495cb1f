"""SplitTask: one model whose operators run on a device or in a cloud, and the link between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import BadInput


@dataclass(frozen=True)
class MatmulShape:
    """[m, k] times [k, n]."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class ConvolutionShape:
    """``outputs`` channels from ``inputs``, a square ``kernel``, ``height`` x ``width`` outputs, stride 1."""

    inputs: int
    outputs: int
    kernel: int
    height: int
    width: int


Shape = MatmulShape | ConvolutionShape


@dataclass(frozen=True)
class SplitOperator:
    """``cloud`` seconds there; on the device ``device`` seconds, or what its ``shape`` costs on a backend.

    ``inputs`` are places of operators before it (-1: the input of the task), ``bytes`` those of its output.
    ``stays`` on the device whatever the link.
    """

    name: str
    cloud: float
    bytes: float
    inputs: tuple[int, ...]
    device: float | None = None
    shape: Shape | None = None
    stays: bool = False


@dataclass(frozen=True)
class Backend:
    """Elementary operations a second that a device's library reaches, and seconds to schedule an operator."""

    name: str
    rate: float
    scheduling: float


@dataclass(frozen=True)
class LinkState:
    """Bytes a second up and down from ``time`` (s) on."""

    time: float
    up: float
    down: float


@dataclass(frozen=True)
class SplitTask:
    """``links`` in the order of time; ``output`` bytes are the result, which the device needs.

    A part in the cloud costs a ``round_trip`` (s), whatever is sent.
    """

    name: str
    operators: tuple[SplitOperator, ...]
    links: tuple[LinkState, ...]
    round_trip: float
    input: float
    output: float
    duration: float
    backends: tuple[Backend, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, one in enumerate(self.operators):
            if one.device is None and (one.shape is None or not self.backends):
                what = "has no seconds on the device, nor a shape and backends"
                raise BadInput(f"{one.name} {what}", self.name, "device, or matmul or convolution")
            if not all(-1 <= source < place for source in one.inputs) or not one.inputs:
                raise BadInput(f"{one.name} reads {one.inputs}", self.name, "operators before it")

    def __len__(self) -> int:
        return len(self.operators)

    @property
    def sinks(self) -> tuple[int, ...]:
        """Operators whose output nothing reads: the result."""
        read = {source for one in self.operators for source in one.inputs}
        return tuple(place for place in range(len(self)) if place not in read)
