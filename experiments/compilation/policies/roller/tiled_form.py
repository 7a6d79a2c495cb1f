"""The form in which Roller tiles an operator: few, long axes."""

from __future__ import annotations

from experiments.compilation.interface.expressions import Expression
from experiments.compilation.planning.tiles.operators import implicit_gemm


def tiled_form(expression: Expression) -> Expression:
    """Convolutions without groups as products of their windows' matrix; everything else as it is."""
    grouped = any(axis.name == "g" for axis in expression.axes)
    return implicit_gemm(expression) if expression.kind == "convolution" and not grouped else expression
