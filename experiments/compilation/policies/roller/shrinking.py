"""Scale-out of small operators (Roller, section 3.3): tiles are halved until every unit has a block."""

from __future__ import annotations

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression, Sizes
from experiments.compilation.planning.tiles.program import TileProgram, grid

WAYS = ("one", "all", "none", "priced")


def shrunk(
    expression: Expression, program: TileProgram, architecture: Architecture, way: str = "one"
) -> TileProgram:
    """Return ``program`` with its spatial tiles halved while the grid is smaller than the device.

    Sizes are rounded up, at both levels.
    """
    return _path(expression, program, architecture.units.count, way)[-1]


def sizes_on_the_way(
    expression: Expression, program: TileProgram, architecture: Architecture
) -> tuple[TileProgram, ...]:
    """Return ``program`` at every size while one axis at a time is halved until each scheduler has a block.

    Ours, for ``priced``: fewer blocks of more threads may be faster than a block for every unit; the model is
    asked.
    """
    units = architecture.units
    return tuple(_path(expression, program, units.count * units.partitions, "one"))


def _path(expression: Expression, program: TileProgram, blocks: int, way: str) -> list[TileProgram]:
    """Return the program and what it is halved to until there are so many ``blocks``."""
    found = [program]
    while way != "none" and grid(expression, program) < blocks:
        axes = [axis for axis, size in enumerate(program.shared) if size > 1]
        if not axes:
            break
        halved = (
            [_halved(program, tuple(axes))] if way == "all" else [_halved(program, (axis,)) for axis in axes]
        )
        program = max(halved, key=lambda candidate: expression.intensity(candidate.shared))
        found.append(program)
    return found


def _halved(program: TileProgram, axes: Sizes) -> TileProgram:
    def half(sizes: Sizes) -> Sizes:
        return tuple(-(-size // 2) if axis in axes else size for axis, size in enumerate(sizes))

    return TileProgram(half(program.register), half(program.shared), program.step)
