"""Steps written by hand, as a capture would give them: ops by tensors' names, tensors by kinds and shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.workloads.aggregate import layer_graph
from experiments.workloads.einsum import Operator
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors

#: name of the op, the tensors it reads, the tensors it writes.
Op = tuple[str, Sequence[str], Sequence[str]]
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]


def step_of(ops: Sequence[Op], tensors: Shapes, phases: Sequence[str] = (), **facts: Any) -> Step:
    """A step of one module ``net``; tensors are float32, an op moves what it reads and writes."""
    place = {name: number for number, name in enumerate(tensors)}
    size = {name: 4 * math.prod(shape) for name, (_, shape) in tensors.items()}
    count = len(ops)
    table = Ops(
        name=tuple(name for name, _, _ in ops),
        target=tuple(f"aten.{name}.default" for name, _, _ in ops),
        module=("net",) * count,
        phase=np.array([PHASES.index(phase) for phase in phases or ("forward",) * count], np.int8),
        seconds=np.full(count, np.nan),
        flops=np.arange(1.0, count + 1),
        bytes_moved=np.array(
            [sum(size[t] for t in (*reads, *writes)) for _, reads, writes in ops], np.float64
        ),
        workspace=np.zeros(count, np.int64),
        dtype=("float32",) * count,
        view=np.zeros(count, np.bool_),
        random=np.zeros(count, np.bool_),
    )
    columns = Tensors(
        name=tuple(tensors),
        bytes=np.array(list(size.values()), np.int64),
        dtype=("float32",) * len(tensors),
        shape=tuple(shape for _, shape in tensors.values()),
        kind=np.array([KINDS.index(kind) for kind, _ in tensors.values()], np.int8),
        sparsity=np.full(len(tensors), np.nan),
    )
    reads, writes = (Ragged.of([place[t] for t in op[side]] for op in ops) for side in (1, 2))
    return Step("by hand", table, columns, reads, writes, facts=facts)


def read_as(ops: Sequence[Op], tensors: Shapes, **facts: Any) -> tuple[Operator, ...]:
    """The operators that the ops are read as."""
    return layer_graph(step_of(ops, tensors, **facts)).einsums


def one_op(name: str, result: tuple[int, ...], *reads: tuple[str, tuple[int, ...]], **facts: Any) -> Operator:
    """A single op of these (kind, shape) operands, as it is read."""
    tensors = {f"t{number}": operand for number, operand in enumerate(reads)}
    ops = [(name, list(tensors), ["result"])]
    return read_as(ops, {**tensors, "result": ("activation", result)}, **facts)[0]
