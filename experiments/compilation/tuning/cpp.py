"""A schedule of a contraction as C++ source: loops in the order S0 S1 R0 S2 R1 S3 around a tile of registers.

``extern "C" void kernel(const float* in0, const float* in1, float* out)``. The register tile (S3) is written out
statement by statement where it has no more statements than the unroll limit, else it is an array and loops. GCC's
vector extension carries the lanes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.interface.tuning import Access, Contraction
from experiments.compilation.tuning.schedules import Schedule

#: A local tile lies on a thread's stack.
MOST_LOCAL_BYTES = 1 << 20
#: Partial sums of a divided reduction.
MOST_PARTIAL_BYTES = 1 << 28


class Unschedulable(Exception):
    """The schedule asks for something that no program can have; the message says what."""


@dataclass(frozen=True)
class _Loop:
    """``variable`` runs over ``extent``; a step moves ``axis`` by ``step``."""

    axis: str
    level: int
    extent: int
    step: int

    @property
    def variable(self) -> str:
        return f"{self.axis}{self.level}"


def source(nest: Contraction, schedule: Schedule) -> str:
    """The program; ``Unschedulable`` where a tile or the partial sums would not fit."""
    return _Program(nest, schedule).text()


class _Program:
    def __init__(self, nest: Contraction, schedule: Schedule) -> None:
        self.nest, self.schedule = nest, schedule
        self.spatial = [axis for axis, _ in nest.spatial]
        self.reduce = [axis for axis, _ in nest.reduce]
        self.vector_axis = self.spatial[-1]
        self.lanes = schedule.lanes if self._can_vectorise() else 1
        self.loops = {
            (axis, level): _Loop(axis, level, extent, math.prod(lengths[level + 1 :]))
            for axis, lengths in schedule.tiles.items()
            for level, extent in enumerate(lengths)
        }
        self.lines: list[str] = []
        self.depth = 1

    def _can_vectorise(self) -> bool:
        return all(access.coefficient(self.vector_axis) in (0, 1) for access in self.nest.inputs)

    def text(self) -> str:
        head = [
            "#include <cstdlib>",
            "#include <cstring>",
            f"typedef float vec __attribute__((vector_size({4 * self.lanes}), aligned(4), may_alias));"
            if self.lanes > 1
            else "typedef float vec;",
            'extern "C" void kernel(const float* __restrict in0_, const float* __restrict in1_, float* __restrict out) {',
        ]
        self._inputs()
        if self.schedule.sketch == "rfactor-inner":
            self._lanes_of_sums()
        elif self.schedule.sketch == "rfactor-outer":
            self._partial_sums()
        else:
            self._tiled()
        return "\n".join([*head, *self.lines, "}", ""])

    def _emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def _open(self, loops: Sequence[_Loop], pragma: str = "", keep_unit: bool = False) -> int:
        """Begin the loops (those of one step only where kept); how many braces were opened."""
        opened = [loop for loop in loops if loop.extent > 1 or keep_unit]
        if pragma:
            self._emit(pragma)
        for loop in opened:
            self._emit(
                f"for (long {loop.variable} = 0; {loop.variable} < {loop.extent}; ++{loop.variable}) {{"
            )
            self.depth += 1
        for loop in loops:
            if loop not in opened:
                self._emit(f"const long {loop.variable} = 0; (void){loop.variable};")
        return len(opened)

    def _close(self, count: int) -> None:
        for _ in range(count):
            self.depth -= 1
            self._emit("}")

    def _inputs(self) -> None:
        """Each input as it is, or copied into the middle of zeros."""
        for place, access in enumerate(self.nest.inputs):
            if not access.inside:
                self._emit(f"const float* __restrict in{place} = in{place}_;")
                continue
            self._emit(
                f"static float* padded{place} = (float*)calloc({math.prod(access.sizes)}, sizeof(float));"
            )
            self._copy_inside(access, place)
            self._emit(f"const float* __restrict in{place} = padded{place};")

    def _copy_inside(self, access: Access, place: int) -> None:
        inner = [math.prod(access.inside[dim + 1 :]) for dim in range(len(access.inside))]
        outer = list(zip(access.inside[:-1], access.strides, inner, access.padding, strict=False))
        if self.schedule.parallel:
            self._emit(f"#pragma omp parallel for collapse({min(2, len(outer))})")
        for dim, (size, *_) in enumerate(outer):
            self._emit(f"for (long p{dim} = 0; p{dim} < {size}; ++p{dim})")
        into = " + ".join(f"(p{d} + {pad}) * {stride}" for d, (_, stride, _, pad) in enumerate(outer))
        from_ = " + ".join(f"p{d} * {step}" for d, (_, _, step, _) in enumerate(outer))
        target = f"padded{place} + {into} + {access.padding[-1]}"
        self._emit(f"memcpy({target}, in{place}_ + {from_}, {access.inside[-1]} * sizeof(float));")

    def _level(self, axes: Sequence[str], level: int) -> list[_Loop]:
        return [self.loops[axis, level] for axis in axes]

    def _offset(self, access: Access, levels: Mapping[str, Sequence[int]], more: int = 0) -> str:
        """The flat index as a sum over the given loop levels of each axis, plus a constant."""
        terms = []
        for axis, chosen in levels.items():
            for level in chosen:
                loop = self.loops[axis, level]
                step = access.coefficient(axis) * loop.step
                if step and loop.extent > 1:
                    terms.append(f"{loop.variable} * {step}")
        return " + ".join([*terms, str(more)] if more or not terms else terms)

    def _all_outer(self) -> dict[str, Sequence[int]]:
        """All loop levels but the registers' (S3)."""
        return {**dict.fromkeys(self.spatial, (0, 1, 2)), **dict.fromkeys(self.reduce, (0, 1))}

    def _parallel(self) -> str:
        count = min(self.schedule.parallel, len(self.spatial))
        return f"#pragma omp parallel for collapse({count}) schedule(static)" if count else ""

    def _ordered(self) -> list[str]:
        """The axes of the outermost loops: the chosen one first."""
        first = self.schedule.order if self.schedule.order in self.spatial else self.spatial[0]
        return [first, *(axis for axis in self.spatial if axis != first)]

    def _tiled(self) -> None:
        fused = {"fused-1": 1, "fused-2": 2}.get(self.schedule.sketch, 0)
        if not fused:
            self._emit(f"memset(out, 0, {math.prod(self.nest.output.sizes)} * sizeof(float));")
        braces = self._open(self._level(self._ordered(), 0), self._parallel(), keep_unit=True)
        if fused == 1:
            self._local(1)
        braces += self._open(self._level(self.spatial, 1))
        if fused == 2:
            self._local(2)
        inner = self._open(self._level(self.reduce, 0))
        inner += self._open(self._level(self.spatial, 2))
        self._registers(fused)
        self._close(inner)
        if fused == 2:
            self._write_back(2)
        if fused == 1:
            self._close(len([loop for loop in self._level(self.spatial, 1) if loop.extent > 1]))
            braces -= len([loop for loop in self._level(self.spatial, 1) if loop.extent > 1])
            self._write_back(1)
        self._close(braces)

    def _tile_sizes(self, level: int) -> list[int]:
        """Points of each spatial axis in the tile that the loops from ``level`` on cover."""
        return [math.prod(self.schedule.tiles[axis][level:]) for axis in self.spatial]

    def _local(self, level: int) -> None:
        size = math.prod(self._tile_sizes(level))
        if 4 * size > MOST_LOCAL_BYTES:
            raise Unschedulable(f"a local tile of {4 * size} bytes (at most {MOST_LOCAL_BYTES})")
        self._emit(f"float tile[{size}];")
        self._emit(f"memset(tile, 0, {size} * sizeof(float));")

    def _write_back(self, level: int) -> None:
        """The local tile to its place in the output."""
        sizes = self._tile_sizes(level)
        for axis, size in zip(self.spatial, sizes, strict=True):
            self._emit(f"for (long t_{axis} = 0; t_{axis} < {size}; ++t_{axis})")
        place = " + ".join(
            f"t_{axis} * {stride}" for axis, stride in zip(self.spatial, _strides(sizes), strict=True)
        )
        levels = dict.fromkeys(self.spatial, range(level))
        inside = " + ".join(f"t_{axis} * {self.nest.output.coefficient(axis)}" for axis in self.spatial)
        self._emit(f"  out[{self._offset(self.nest.output, levels)} + {inside}] = tile[{place}];")

    def _registers(self, fused: int) -> None:
        """Load the register tile, run the inner reductions, store it."""
        points = list(self._register_points())
        if len(points) > MOST_LOCAL_BYTES // (4 * self.lanes):
            raise Unschedulable(f"a register tile of {len(points)} vectors")
        if len(points) <= max(self.schedule.unroll, 1):
            self._written_out(points, fused)
        else:
            self._looped(fused)

    def _register_points(self) -> Iterator[dict[str, int]]:
        """Each statement of the register tile: where it stands along each axis (the vector axis in whole vectors)."""
        steps = [self.lanes if axis == self.vector_axis else 1 for axis in self.spatial]
        ranges = [
            range(0, self.loops[axis, 3].extent, step) for axis, step in zip(self.spatial, steps, strict=True)
        ]
        for values in itertools.product(*ranges):
            yield dict(zip(self.spatial, values, strict=True))

    def _written_out(self, points: list[dict[str, int]], fused: int) -> None:
        homes = [self._home(fused, constants=point) for point in points]
        for number, home in enumerate(homes):
            self._emit(
                self._load(
                    f"vec acc{number} = {{}};" if self.lanes > 1 else f"vec acc{number};",
                    f"acc{number}",
                    home,
                )
            )
        braces = self._open(self._level(self.reduce, 1))
        for number, point in enumerate(points):
            left, right = (self._operand(place, point) for place in (0, 1))
            self._emit(f"acc{number} += {left} * {right};")
        self._close(braces)
        for number, home in enumerate(homes):
            self._emit(self._store(f"acc{number}", home))

    def _looped(self, fused: int) -> None:
        """The register tile as an array; the compiler decides what stays in registers."""
        steps = [self.lanes if axis == self.vector_axis else 1 for axis in self.spatial]
        counts = [self.loops[axis, 3].extent // step for axis, step in zip(self.spatial, steps, strict=True)]
        number = " + ".join(f"{a}3 * {s}" for a, s in zip(self.spatial, _strides(counts), strict=True))
        scaled = {axis: f"({axis}3 * {step})" for axis, step in zip(self.spatial, steps, strict=True)}

        def over(body: str) -> None:
            for axis, count in zip(self.spatial, counts, strict=True):
                self._emit(f"for (long {axis}3 = 0; {axis}3 < {count}; ++{axis}3)")
            self._emit(f"  {{ {body} }}")

        home = self._home(fused, variables=scaled)
        self._emit(f"vec acc[{math.prod(counts)}];")
        over(self._load("", f"acc[{number}]", home))
        braces = self._open(self._level(self.reduce, 1))
        left, right = (self._operand(place, variables=scaled) for place in (0, 1))
        over(f"acc[{number}] += {left} * {right};")
        self._close(braces)
        over(self._store(f"acc[{number}]", home))

    def _inner(
        self, access: Access, constants: dict[str, int] | None, variables: dict[str, str] | None
    ) -> str:
        terms = [self._offset(access, self._all_outer())]
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
        """Where a register's sum is kept, and how far apart its lanes are there."""
        if not fused:
            access = self.nest.output
            return f"out + {self._inner(access, constants, variables)}", access.coefficient(self.vector_axis)
        terms = []
        sizes = self._tile_sizes(fused)
        for axis, stride in zip(self.spatial, _strides(sizes), strict=True):
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

    def _everything(self) -> dict[str, Sequence[int]]:
        return {**dict.fromkeys(self.spatial, (0, 1, 2, 3)), **dict.fromkeys(self.reduce, (0, 1))}

    def _partial_sums(self) -> None:
        """rfactor by the outer part of the reductions: sums of their own for each, added up at the end."""
        size, parts = (
            math.prod(self.nest.output.sizes),
            math.prod(loop.extent for loop in self._level(self.reduce, 0)),
        )
        if 4 * size * parts > MOST_PARTIAL_BYTES:
            raise Unschedulable(f"partial sums of {4 * size * parts} bytes (at most {MOST_PARTIAL_BYTES})")
        self._emit(f"static float* partial = (float*)malloc({size * parts} * sizeof(float));")
        count = len(self.reduce)
        pragma = (
            f"#pragma omp parallel for collapse({count}) schedule(static)" if self.schedule.parallel else ""
        )
        braces = self._open(self._level(self.reduce, 0), pragma, keep_unit=True)
        strides = _strides([loop.extent for loop in self._level(self.reduce, 0)])
        part = " + ".join(f"{axis}0 * {stride}" for axis, stride in zip(self.reduce, strides, strict=True))
        self._emit(f"float* mine = partial + ({part}) * {size};")
        self._emit(f"memset(mine, 0, {size} * sizeof(float));")
        for level in range(3):
            braces += self._open(self._level(self.spatial, level))
        braces += self._open(self._level(self.reduce, 1))
        braces += self._open(self._level(self.spatial, 3))
        left, right = (
            f"in{p}[{self._offset(access, self._everything())}]" for p, access in enumerate(self.nest.inputs)
        )
        self._emit(f"mine[{self._offset(self.nest.output, self._everything())}] += {left} * {right};")
        self._close(braces)
        self._emit(f"for (long i = 0; i < {size}; ++i) {{ float sum = 0;")
        self._emit(f"  for (long p = 0; p < {parts}; ++p) sum += partial[p * {size} + i];")
        self._emit("  out[i] = sum; }")

    def _lanes_of_sums(self) -> None:
        """rfactor by the inner part of the reductions: one sum for each of its steps, added up at each output."""
        inner = self._level(self.reduce, 1)
        width = math.prod(loop.extent for loop in inner)
        if 4 * width > MOST_LOCAL_BYTES:
            raise Unschedulable(f"{width} sums side by side")
        braces = self._open(self._level(self.spatial, 0), self._parallel(), keep_unit=True)
        for level in range(1, 4):
            braces += self._open(self._level(self.spatial, level))
        self._emit(f"float sums[{width}];")
        self._emit(f"memset(sums, 0, {width} * sizeof(float));")
        within = self._open(self._level(self.reduce, 0)) + self._open(inner)
        strides = _strides([loop.extent for loop in inner])
        lane = " + ".join(f"{loop.variable} * {stride}" for loop, stride in zip(inner, strides, strict=True))
        left, right = (
            f"in{p}[{self._offset(access, self._everything())}]" for p, access in enumerate(self.nest.inputs)
        )
        self._emit(f"sums[{lane}] += {left} * {right};")
        self._close(within)
        self._emit("float sum = 0;")
        self._emit(f"for (int l = 0; l < {width}; ++l) sum += sums[l];")
        self._emit(f"out[{self._offset(self.nest.output, self._everything())}] = sum;")
        self._close(braces)


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
