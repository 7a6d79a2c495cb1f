"""Axes of tensors: what an op walks of those that it reads, and the axes of every tensor seen so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.workloads.step import KINDS, Step

#: Kinds that are there before the step and belong to the model.
WEIGHTS = tuple(KINDS.index(kind) for kind in ("parameter", "buffer"))


@dataclass(eq=False)
class Axis:
    """A dimension of a tensor; ``label`` may be found out later, by an op that reads it."""

    size: int
    label: str


Axes = tuple[Axis, ...]
#: The dimensions of a picture behind its batch.
PICTURE = ("channel", "height", "width")


@dataclass(frozen=True)
class Walk:
    """A tensor that is read, and the loops of the op that walk its axes.

    ``loops`` has for each of its axes the axis of the op's loops (``None``: needed whole).
    """

    tensor: int
    loops: tuple[Axis | None, ...]
    part: float = 1.0


@dataclass(frozen=True)
class Loops:
    """What a rule says of an op."""

    kind: str
    output: Axes
    walks: tuple[Walk, ...]
    statistics: Axes = ()
    whole: Axes = ()
    halo: tuple[tuple[Axis, int], ...] = ()


@dataclass
class Tensors:
    """The axes of every tensor seen so far, and how those of an unknown one are named.

    ``hidden`` is the width of a language model's embeddings.
    """

    step: Step
    axes: dict[int, Axes] = field(default_factory=dict)
    hidden: int = 0

    def __post_init__(self) -> None:
        facts = self.step.facts
        self.batch = Axis(int(facts.get("batch") or 1), "batch")
        self.sequence = Axis(int(facts.get("sequence") or 0), "sequence")

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.step.tensors.shape[tensor]

    def elements(self, tensor: int) -> int:
        return math.prod(self.shape(tensor))

    def is_weight(self, tensor: int) -> bool:
        return int(self.step.tensors.kind[tensor]) in WEIGHTS

    def of(self, tensor: int) -> Axes:
        """The axes of a tensor; those of one that nobody made are named by its shape."""
        if tensor not in self.axes:
            weight = self.is_weight(tensor)
            shape = self.shape(tensor)
            self.axes[tensor] = tuple(self.feature(n) for n in shape) if weight else self.fresh(shape)
        return self.axes[tensor]

    def feature(self, size: int) -> Axis:
        """An axis of which nothing is known but its size."""
        return Axis(size, "feedforward" if self.sequence.size else "channel")

    def fresh(self, shape: Sequence[int]) -> Axes:
        """Axes for a shape: the batch comes first where it is there, the sequence is known by its length."""
        rest = list(shape)
        found: list[Axis] = []
        if rest and self.sequence.size and rest[0] == self.batch.size * self.sequence.size:
            found, rest = [self.batch, self.sequence], rest[1:]
        elif rest and rest[0] == self.batch.size:
            found, rest = [self.batch], rest[1:]
        if len(rest) == 3:
            return (*found, *(Axis(n, label) for n, label in zip(rest, PICTURE, strict=True)))
        for place, size in enumerate(rest):
            if size == self.sequence.size and self.sequence not in found:
                found.append(self.sequence)
            elif len(rest) == 2 and place == 0:
                found.append(Axis(size, "sequence"))
            else:
                found.append(self.feature(size))
        return tuple(found)


def broadcast(tensors: Tensors, tensor: int, output: Axes) -> Walk:
    """How an operand is walked: by the axes it shares, else the result's last axes of the same sizes."""
    own = tensors.of(tensor)
    if math.prod(a.size for a in own) == math.prod(a.size for a in output) and len(own) == len(output):
        return Walk(tensor, output)
    free = list(output)
    loops: list[Axis | None] = []
    for axis in reversed(own):
        match = next((a for a in reversed(free) if a is axis or a.size == axis.size), None)
        loops.append(match)
        if match is not None:
            free = free[: free.index(match)] if match in free else free
    return Walk(tensor, tuple(reversed(loops)))
