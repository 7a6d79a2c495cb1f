"""C++ text in the making.

A contraction's loops opened and closed, its inputs made ready, its places written out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.interface.tuning import BufferAccess, Contraction
from experiments.compilation.planning.tuning.schedules import LoopSchedule


class Unschedulable(Exception):
    """The schedule asks for something that no program can have; the message says what."""


@dataclass(frozen=True)
class TextLoop:
    """``variable`` runs over ``extent``; a step moves ``axis`` by ``step``."""

    axis: str
    level: int
    extent: int
    step: int

    @property
    def variable(self) -> str:
        return f"{self.axis}{self.level}"


class Text:
    """The lines of one kernel, and the loops that its schedule cuts the axes into."""

    def __init__(self, nest: Contraction, schedule: LoopSchedule) -> None:
        self.nest, self.schedule = nest, schedule
        self.spatial = [axis for axis, _ in nest.spatial]
        self.reduce = [axis for axis, _ in nest.reduce]
        self.vector_axis = self.spatial[-1]
        self.lanes = schedule.lanes if self._can_vectorize() else 1
        self.loops = {
            (axis, level): TextLoop(axis, level, extent, math.prod(lengths[level + 1 :]))
            for axis, lengths in schedule.tiles.items()
            for level, extent in enumerate(lengths)
        }
        self.lines: list[str] = []
        self.kept: list[str] = []
        self.depth = 1

    def _can_vectorize(self) -> bool:
        return all(access.coefficient(self.vector_axis) in (0, 1) for access in self.nest.inputs)

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def open(self, loops: Sequence[TextLoop], pragma: str = "", keep_unit: bool = False) -> int:
        """Begin the loops (those of one step only where kept); how many braces were opened."""
        opened = [loop for loop in loops if loop.extent > 1 or keep_unit]
        if pragma:
            self.emit(pragma)
        for loop in opened:
            self.emit(
                f"for (long {loop.variable} = 0; {loop.variable} < {loop.extent}; ++{loop.variable}) {{"
            )
            self.depth += 1
        for loop in loops:
            if loop not in opened:
                self.emit(f"const long {loop.variable} = 0; (void){loop.variable};")
        return len(opened)

    def close(self, count: int) -> None:
        for _ in range(count):
            self.depth -= 1
            self.emit("}")

    def keep(self, name: str, allocation: str) -> None:
        """Memory that the first call allocates and that stays until it is released, as a workspace does."""
        self.kept.append(name)
        self.emit(f"if (!{name}) {name} = (float*){allocation};")

    def inputs(self) -> None:
        """Each input as it is, or copied into the middle of zeros."""
        for place, access in enumerate(self.nest.inputs):
            if not access.inside:
                self.emit(f"const float* __restrict in{place} = in{place}_;")
                continue
            self.keep(f"padded{place}", f"calloc({math.prod(access.sizes)}, sizeof(float))")
            self._copy_inside(access, place)
            self.emit(f"const float* __restrict in{place} = padded{place};")

    def _copy_inside(self, access: BufferAccess, place: int) -> None:
        inner = [math.prod(access.inside[dim + 1 :]) for dim in range(len(access.inside))]
        outer = list(zip(access.inside[:-1], access.strides, inner, access.padding, strict=False))
        if self.schedule.parallel:
            self.emit(f"#pragma omp parallel for collapse({min(2, len(outer))})")
        for dim, (size, *_) in enumerate(outer):
            self.emit(f"for (long p{dim} = 0; p{dim} < {size}; ++p{dim})")
        into = " + ".join(f"(p{d} + {pad}) * {stride}" for d, (_, stride, _, pad) in enumerate(outer))
        from_ = " + ".join(f"p{d} * {step}" for d, (_, _, step, _) in enumerate(outer))
        target = f"padded{place} + {into} + {access.padding[-1]}"
        self.emit(f"memcpy({target}, in{place}_ + {from_}, {access.inside[-1]} * sizeof(float));")

    def level(self, axes: Sequence[str], level: int) -> list[TextLoop]:
        return [self.loops[axis, level] for axis in axes]

    def offset(self, access: BufferAccess, levels: Mapping[str, Sequence[int]], more: int = 0) -> str:
        """Return the flat index as a sum over the given loop levels of each axis, plus a constant."""
        terms = []
        for axis, chosen in levels.items():
            for level in chosen:
                loop = self.loops[axis, level]
                step = access.coefficient(axis) * loop.step
                if step and loop.extent > 1:
                    terms.append(f"{loop.variable} * {step}")
        return " + ".join([*terms, str(more)] if more or not terms else terms)

    def everything(self) -> dict[str, Sequence[int]]:
        return {**dict.fromkeys(self.spatial, (0, 1, 2, 3)), **dict.fromkeys(self.reduce, (0, 1))}

    def parallel(self) -> str:
        count = min(self.schedule.parallel, len(self.spatial))
        return f"#pragma omp parallel for collapse({count}) schedule(static)" if count else ""


def strides_of(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
