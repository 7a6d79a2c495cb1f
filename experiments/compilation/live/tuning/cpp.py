"""A schedule of a contraction as C++ source.

Loops in the order S0 S1 R0 S2 R1 S3 around a tile of registers.

``extern "C" void kernel(const float* in0, const float* in1, float* out)``; ``release()`` frees what it kept
between two calls. The register tile (S3) is written out statement by statement where it has no more
statements than the unroll limit, else it is an array and loops. GCC's vector extension carries the lanes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from experiments.compilation.interface.tuning import BufferAccess, Contraction
from experiments.compilation.live.tuning.cpp_rfactor import MOST_LOCAL_BYTES, lanes_of_sums, partial_sums
from experiments.compilation.live.tuning.cpp_text import Text, Unschedulable, strides_of
from experiments.compilation.planning.tuning.schedules import LoopSchedule

__all__ = ["Unschedulable", "source"]


def source(nest: Contraction, schedule: LoopSchedule) -> str:
    """Return the program; ``Unschedulable`` where a tile or the partial sums would not fit."""
    return _Program(nest, schedule).text()


class _Program(Text):
    def text(self) -> str:
        self.inputs()
        if self.schedule.sketch == "rfactor-inner":
            lanes_of_sums(self)
        elif self.schedule.sketch == "rfactor-outer":
            partial_sums(self)
        else:
            self._write_tiles()
        head = [
            "#include <cstdlib>",
            "#include <cstring>",
            f"typedef float vec __attribute__((vector_size({4 * self.lanes}), aligned(4), may_alias));"
            if self.lanes > 1
            else "typedef float vec;",
            *(f"static float* {name};" for name in self.kept),
            'extern "C" void kernel(const float* __restrict in0_, const float* __restrict in1_, '
            "float* __restrict out) {",
        ]
        freed = " ".join(f"free({name}); {name} = nullptr;" for name in self.kept)
        return "\n".join([*head, *self.lines, "}", f'extern "C" void release() {{ {freed} }}', ""])

    def _all_outer(self) -> dict[str, Sequence[int]]:
        """Return all loop levels but the registers' (S3)."""
        return {**dict.fromkeys(self.spatial, (0, 1, 2)), **dict.fromkeys(self.reduce, (0, 1))}

    def _order_axes(self) -> list[str]:
        """Return the axes of the outermost loops: the chosen one first."""
        first = self.schedule.order if self.schedule.order in self.spatial else self.spatial[0]
        return [first, *(axis for axis in self.spatial if axis != first)]

    def _write_tiles(self) -> None:
        fused = {"fused-1": 1, "fused-2": 2}.get(self.schedule.sketch, 0)
        if not fused:
            self.emit(f"memset(out, 0, {math.prod(self.nest.output.sizes)} * sizeof(float));")
        braces = self.open(self.level(self._order_axes(), 0), self.parallel(), keep_unit=True)
        if fused == 1:
            self._local(1)
        braces += self.open(self.level(self.spatial, 1))
        if fused == 2:
            self._local(2)
        inner = self.open(self.level(self.reduce, 0))
        inner += self.open(self.level(self.spatial, 2))
        self._registers(fused)
        self.close(inner)
        if fused == 2:
            self._write_back(2)
        if fused == 1:
            self.close(len([loop for loop in self.level(self.spatial, 1) if loop.extent > 1]))
            braces -= len([loop for loop in self.level(self.spatial, 1) if loop.extent > 1])
            self._write_back(1)
        self.close(braces)

    def _tile_sizes(self, level: int) -> list[int]:
        """Return points of each spatial axis in the tile that the loops from ``level`` on cover."""
        return [math.prod(self.schedule.tiles[axis][level:]) for axis in self.spatial]

    def _local(self, level: int) -> None:
        size = math.prod(self._tile_sizes(level))
        if 4 * size > MOST_LOCAL_BYTES:
            raise Unschedulable(f"a local tile of {4 * size} bytes (at most {MOST_LOCAL_BYTES})")
        self.emit(f"float tile[{size}];")
        self.emit(f"memset(tile, 0, {size} * sizeof(float));")

    def _write_back(self, level: int) -> None:
        """The local tile to its place in the output."""
        sizes = self._tile_sizes(level)
        for axis, size in zip(self.spatial, sizes, strict=True):
            self.emit(f"for (long t_{axis} = 0; t_{axis} < {size}; ++t_{axis})")
        place = " + ".join(
            f"t_{axis} * {stride}" for axis, stride in zip(self.spatial, strides_of(sizes), strict=True)
        )
        levels = dict.fromkeys(self.spatial, range(level))
        inside = " + ".join(f"t_{axis} * {self.nest.output.coefficient(axis)}" for axis in self.spatial)
        self.emit(f"  out[{self.offset(self.nest.output, levels)} + {inside}] = tile[{place}];")

    def _registers(self, fused: int) -> None:
        """Load the register tile, run the inner reductions, store it."""
        points = list(self._register_points())
        if len(points) > MOST_LOCAL_BYTES // (4 * self.lanes):
            raise Unschedulable(f"a register tile of {len(points)} vectors")
        if len(points) <= max(self.schedule.unroll, 1):
            self._written_out(points, fused)
        else:
            self._write_loops(fused)

    def _register_points(self) -> Iterator[dict[str, int]]:
        """Yield each statement of the register tile.

        Where it stands along each axis (the vector axis in whole vectors).
        """
        steps = [self.lanes if axis == self.vector_axis else 1 for axis in self.spatial]
        ranges = [
            range(0, self.loops[axis, 3].extent, step) for axis, step in zip(self.spatial, steps, strict=True)
        ]
        for values in itertools.product(*ranges):
            yield dict(zip(self.spatial, values, strict=True))

    def _written_out(self, points: list[dict[str, int]], fused: int) -> None:
        homes = [self._home(fused, constants=point) for point in points]
        for number, home in enumerate(homes):
            self.emit(
                self._load(
                    f"vec acc{number} = {{}};" if self.lanes > 1 else f"vec acc{number};",
                    f"acc{number}",
                    home,
                )
            )
        braces = self.open(self.level(self.reduce, 1))
        for number, point in enumerate(points):
            left, right = (self._operand(place, point) for place in (0, 1))
            self.emit(f"acc{number} += {left} * {right};")
        self.close(braces)
        for number, home in enumerate(homes):
            self.emit(self._store(f"acc{number}", home))

    def _write_loops(self, fused: int) -> None:
        """The register tile as an array; the compiler decides what stays in registers."""
        steps = [self.lanes if axis == self.vector_axis else 1 for axis in self.spatial]
        counts = [self.loops[axis, 3].extent // step for axis, step in zip(self.spatial, steps, strict=True)]
        number = " + ".join(f"{a}3 * {s}" for a, s in zip(self.spatial, strides_of(counts), strict=True))
        scaled = {axis: f"({axis}3 * {step})" for axis, step in zip(self.spatial, steps, strict=True)}

        def over(body: str) -> None:
            for axis, count in zip(self.spatial, counts, strict=True):
                self.emit(f"for (long {axis}3 = 0; {axis}3 < {count}; ++{axis}3)")
            self.emit(f"  {{ {body} }}")

        home = self._home(fused, variables=scaled)
        self.emit(f"vec acc[{math.prod(counts)}];")
        over(self._load("", f"acc[{number}]", home))
        braces = self.open(self.level(self.reduce, 1))
        left, right = (self._operand(place, variables=scaled) for place in (0, 1))
        over(f"acc[{number}] += {left} * {right};")
        self.close(braces)
        over(self._store(f"acc[{number}]", home))

    def _inner(
        self, access: BufferAccess, constants: dict[str, int] | None, variables: dict[str, str] | None
    ) -> str:
        terms = [self.offset(access, self._all_outer())]
        if constants is not None:
            terms.append(str(sum(access.coefficient(axis) * value for axis, value in constants.items())))
        for axis, text in (variables or {}).items():
            terms += [f"{text} * {access.coefficient(axis)}"] if access.coefficient(axis) else []
        return " + ".join(terms)

    def _operand(
        self, place: int, constants: dict[str, int] | None = None, variables: dict[str, str] | None = None
    ) -> str:
        access = self.nest.inputs[place]
        where = self._inner(access, constants, variables)
        if self.lanes > 1 and access.coefficient(self.vector_axis) == 1:
            return f"*(const vec*)(in{place} + {where})"
        return f"in{place}[{where}]"

    def _home(
        self, fused: int, constants: dict[str, int] | None = None, variables: dict[str, str] | None = None
    ) -> tuple[str, int]:
        """Return where a register's sum is kept, and how far apart its lanes are there."""
        if not fused:
            access = self.nest.output
            return f"out + {self._inner(access, constants, variables)}", access.coefficient(self.vector_axis)
        terms = []
        sizes = self._tile_sizes(fused)
        for axis, stride in zip(self.spatial, strides_of(sizes), strict=True):
            for level in range(fused, 3):
                loop = self.loops[axis, level]
                terms += [f"{loop.variable} * {loop.step * stride}"] if loop.extent > 1 else []
            if constants is not None and constants[axis]:
                terms.append(str(constants[axis] * stride))
            terms += [f"{variables[axis]} * {stride}"] if variables else []
        return "tile + " + (" + ".join(terms) or "0"), 1

    def _load(self, declare: str, name: str, home: tuple[str, int]) -> str:
        pointer, apart = home
        if self.lanes == 1 or apart == 1:
            return f"{declare} {name} = *(const vec*)({pointer});"
        return f"{declare} for (int l = 0; l < {self.lanes}; ++l) {name}[l] = ({pointer})[l * {apart}];"

    def _store(self, name: str, home: tuple[str, int]) -> str:
        pointer, apart = home
        if self.lanes == 1 or apart == 1:
            return f"*(vec*)({pointer}) = {name};"
        return f"for (int l = 0; l < {self.lanes}; ++l) ({pointer})[l * {apart}] = {name}[l];"
