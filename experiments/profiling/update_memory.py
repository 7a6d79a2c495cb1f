"""Memory of the updates that a model may have: of each optimizer in each precision, without a capture.

An update does not depend on the batch, and parameters of one shape are updated alike: one of each shape is
updated on fake tensors, and what it makes meanwhile is added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from experiments.core.precision import FULL, PRECISIONS, WITH_FP32_GRADS
from experiments.core.units import DTYPE_BYTES
from experiments.models.build import DTYPES
from experiments.profiling.capture import few_blocks
from experiments.profiling.optimizers import BUCKET, GRADIENT, MASTER, OPTIMIZERS, initial_state
from experiments.profiling.optimizers.matrices import hidden_matrices
from experiments.profiling.optimizers.optimizer import Optimizer, State
from experiments.profiling.program import Unobserved, fake_program
from experiments.profiling.update import Update
from experiments.summaries.composed_law import UpdateMemory
from experiments.workloads.model import ModelSource
from experiments.workloads.step import KINDS, Step

NUMBER = re.compile(r"\d+")
#: The name of the one parameter of an update that is measured.
ONE = "one"


@dataclass(frozen=True)
class Shape:
    """A parameter's shape and type, and whether it is a matrix between embeddings and output."""

    shape: tuple[int, ...]
    dtype: str
    is_hidden: bool

    @property
    def gradient_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class One:
    """Bytes of one parameter's update.

    ``state`` and ``buffers`` are kept for it, ``made`` is live at its worst moment beside them (a gradient
    that has no buffer too), ``need`` is what its largest operation touches.
    """

    state: int
    buffers: int
    made: int
    need: int


def measure_updates(source: ModelSource, step: Step) -> dict[str, dict[str, UpdateMemory]]:
    """Return the memory of the update by precision and optimizer; ``step`` is captured of ``source``.

    Precisions are those of the step's type. The form of the update is ``single``.
    """
    shapes = list(_trained_shapes(source, step))
    is_wide = step.facts["precision"] == FULL
    precisions = [name for name in PRECISIONS if (name == FULL) == is_wide]
    rank = source.options.optimizer_rank
    made = {name: make(rank) for name, make in OPTIMIZERS.items()}
    return {
        precision: {name: _add_up(optimizer, precision, shapes) for name, optimizer in made.items()}
        for precision in precisions
    }


def _trained_shapes(source: ModelSource, step: Step) -> Iterator[Shape]:
    """The parameters that the step writes, in its order."""
    program, _ = fake_program(few_blocks(source)[0])
    hidden = {_pattern(name) for name in hidden_matrices(program.model.module)}
    written = set(step.outputs.values.tolist())
    for index in np.flatnonzero(step.tensors.kind == KINDS.index("parameter")).tolist():
        if index in written:
            is_hidden = _pattern(step.tensors.name[index]) in hidden
            yield Shape(step.tensors.shape[index], step.tensors.dtype[index], is_hidden)


def _pattern(name: str) -> str:
    """A parameter's name in any block of a list of like ones."""
    return NUMBER.sub("*", name)


def _add_up(optimizer: Optimizer, precision: str, shapes: list[Shape]) -> UpdateMemory:
    """Gradients that are not kept in buffers are held until their own update uses them no more."""
    found = {shape: _measure_one(optimizer, precision, shape) for shape in set(shapes)}
    are_held = precision not in WITH_FP32_GRADS
    held = sum(shape.gradient_bytes for shape in shapes) if are_held else 0
    worst = 0, 0
    for shape in shapes:
        held -= shape.gradient_bytes if are_held else 0
        worst = max(worst, (held, found[shape].made), key=sum)
    return UpdateMemory(
        state=sum(found[shape].state for shape in shapes),
        buffers=sum(found[shape].buffers for shape in shapes),
        passing=0 if are_held else max((shape.gradient_bytes for shape in shapes), default=0),
        gradients=worst[0],
        temporaries=worst[1],
        need=max((one.need for one in found.values()), default=0),
    )


def _measure_one(optimizer: Optimizer, precision: str, shape: Shape) -> One:
    with FakeTensorMode():
        parameter = torch.empty(shape.shape, dtype=DTYPES[shape.dtype])
        named = {ONE: parameter}
        hidden = [ONE] if shape.is_hidden else []
        state = initial_state(optimizer, named, named, precision, hidden)
        in_buffer = state.get(f"{ONE}.{GRADIENT}")
        gradient = torch.empty_like(parameter) if in_buffer is None else in_buffer
        update = Update(optimizer, "single", named, state, Unobserved())
        with _Storages([*named.values(), *state.values()]) as storages:
            update.run({ONE: gradient})
    buffers = sum(_bytes_of(value) for name, value in state.items() if _slot(name) in (GRADIENT, BUCKET))
    resident, paged = _divide(optimizer, state)
    return One(resident, buffers, storages.most + paged, storages.need)


def _slot(name: str) -> str:
    return name.rpartition(".")[2]


def _divide(optimizer: Optimizer, state: State) -> tuple[int, int]:
    """Bytes of the optimizer's state that stay on the device, and those that come for the update alone."""
    kept = {
        name: value
        for name, value in state.items()
        if name not in optimizer.shared and _slot(name) not in (GRADIENT, BUCKET)
    }
    paged = sum(_bytes_of(value) for name, value in kept.items() if _has_pages(optimizer, name, value))
    return sum(map(_bytes_of, kept.values())) - paged, paged


def _has_pages(optimizer: Optimizer, name: str, value: Tensor) -> bool:
    return bool(optimizer.paged_from) and value.numel() >= optimizer.paged_from and _slot(name) != MASTER


def _bytes_of(value: Tensor) -> int:
    return value.untyped_storage().nbytes()


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what each operation touches. As in a captured step, a tensor that is not ``held`` lives from
    its first to its last use.
    """

    def __init__(self, held: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tensors = list(held)  # kept, so that no other gets the place of one
        self._held = {value.untyped_storage()._cdata for value in held}
        self._by_op: list[dict[int, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        touched = [value for value in tree_leaves((args, kwargs, out)) if isinstance(value, Tensor)]
        self._tensors += touched
        self._by_op.append({value.untyped_storage()._cdata: _bytes_of(value) for value in touched})
        return out

    @property
    def need(self) -> int:
        """The most bytes that one operation touches."""
        return max((sum(sizes.values()) for sizes in self._by_op), default=0)

    @property
    def most(self) -> int:
        """The most bytes live at once, without those of ``held`` tensors."""
        change = np.zeros(len(self._by_op) + 1, np.int64)
        first = {key: op for op, sizes in reversed([*enumerate(self._by_op)]) for key in sizes}
        last = {key: (op, size) for op, sizes in enumerate(self._by_op) for key, size in sizes.items()}
        for key, (op, size) in last.items():
            if key not in self._held:
                change[first[key]] += size
                change[op + 1] -= size
        return int(np.cumsum(change).max(initial=0))
