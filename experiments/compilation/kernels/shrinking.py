"""Scale-out of small operators (Roller, section 3.3): tiles are halved until every unit has a block."""

from __future__ import annotations

from experiments.compilation.kernels.architecture import Architecture
from experiments.compilation.kernels.expression import Expression, Sizes
from experiments.compilation.kernels.program import Program, grid

WAYS = ("one", "all", "none")


def shrunk(expression: Expression, program: Program, architecture: Architecture, way: str = "one") -> Program:
    """``program`` with its spatial tiles halved (rounded up, at both levels) while the grid is smaller than the device.

    ``one`` axis at a time, that which loses least reuse; ``all`` axes at once, as the published artifact does; ``none``.
    It stops where every tile is one point, however small the grid stays.
    """
    while way != "none" and grid(expression, program) < architecture.units.count:
        axes = [axis for axis, size in enumerate(program.shared) if size > 1]
        if not axes:
            break
        halved = (
            [_halved(program, (axis,)) for axis in axes] if way == "one" else [_halved(program, tuple(axes))]
        )
        program = max(halved, key=lambda candidate: expression.intensity(candidate.shared))
    return program


def _halved(program: Program, axes: Sizes) -> Program:
    def half(sizes: Sizes) -> Sizes:
        return tuple(-(-size // 2) if axis in axes else size for axis, size in enumerate(sizes))

    return Program(half(program.register), half(program.shared), program.step)
