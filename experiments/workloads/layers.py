"""LayerGraph: a DAG of layers with times, FLOPs and bytes, as planners of parallelism want it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from experiments.core.errors import BadInput
from experiments.workloads.einsum import Operator
from experiments.workloads.kernels import Work
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import Floats
from experiments.workloads.transformer import Transformer


class Handed(NamedTuple):
    """``bytes`` of what layer ``producer`` makes that the backward passes of ``keepers`` read.

    Those are other layers, its own or both.
    """

    producer: int
    bytes: float
    keepers: tuple[int, ...]


@dataclass(frozen=True)
class LayerGraph:
    """Columns over layers in topological order.

    Times are seconds and FLOPs are for the whole ``batch`` of samples; ``parameter_bytes`` and
    ``output_bytes`` (what the next layer reads) and ``stash_bytes`` (kept for the backward pass) are bytes,
    the latter two for ``batch`` samples too, and count with the layer that makes them; ``handed`` says where
    the source tells what other layers' backward passes read of it. ``predecessors[i]`` are the layers whose
    output layer ``i`` reads. ``einsums`` are the operators that the layers are made of, as loops over named
    dimensions, in execution order, where the source tells (see ``workloads.einsum``).

    Where the model is a transformer known by its sizes, that is ``transformer``, and ``work[i]`` is what
    layer ``i`` runs, by shape; else layers are known by their times alone.
    """

    name: str
    layer: tuple[str, ...]
    kind: tuple[str, ...]
    forward_seconds: Floats
    backward_seconds: Floats
    forward_flops: Floats
    backward_flops: Floats
    parameter_bytes: Floats
    output_bytes: Floats
    stash_bytes: Floats
    predecessors: Ragged
    batch: int
    timing: str = "none"
    timed_on: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    einsums: tuple[Operator, ...] = ()
    work: tuple[tuple[Work, ...], ...] = ()
    transformer: Transformer | None = None
    handed: tuple[Handed, ...] = ()

    def __post_init__(self) -> None:
        if any(len(column) != len(self.layer) for column in self._columns()):
            raise BadInput("columns differ in length", self.name)
        if self.work and len(self.work) != len(self.layer):
            raise BadInput("work and layers differ in number", self.name)
        if (self.predecessors.values >= self.predecessors.rows()).any():
            raise BadInput("a layer reads one that comes after it", self.name, "layers in topological order")

    def _columns(self) -> tuple[Any, ...]:
        times = (self.forward_seconds, self.backward_seconds, self.forward_flops, self.backward_flops)
        return (
            *times,
            self.kind,
            self.parameter_bytes,
            self.output_bytes,
            self.stash_bytes,
            self.predecessors,
        )

    def __len__(self) -> int:
        return len(self.layer)

    @property
    def flops(self) -> float:
        """FLOPs of one step over ``batch`` samples."""
        return float(self.forward_flops.sum() + self.backward_flops.sum())
