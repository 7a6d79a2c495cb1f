"""Schedules that divide a reduction (rfactor).

Partial sums of its outer part, or of each step of its inner part.
"""

from __future__ import annotations

import math

from experiments.compilation.live.tuning.cpp_text import Text, Unschedulable, strides_of

#: Bytes of a local tile, or of partial sums, that a thread's stack may hold.
MOST_LOCAL_BYTES = 1 << 20
#: Partial sums of a divided reduction.
MOST_PARTIAL_BYTES = 1 << 28


def partial_sums(text: Text) -> None:
    """rfactor by the outer part of the reductions: sums of their own for each, added up at the end."""
    size, parts = (
        math.prod(text.nest.output.sizes),
        math.prod(loop.extent for loop in text.level(text.reduce, 0)),
    )
    if 4 * size * parts > MOST_PARTIAL_BYTES:
        raise Unschedulable(f"partial sums of {4 * size * parts} bytes (at most {MOST_PARTIAL_BYTES})")
    text.keep("partial", f"malloc({size * parts} * sizeof(float))")
    count = len(text.reduce)
    pragma = f"#pragma omp parallel for collapse({count}) schedule(static)" if text.schedule.parallel else ""
    braces = text.open(text.level(text.reduce, 0), pragma, keep_unit=True)
    strides = strides_of([loop.extent for loop in text.level(text.reduce, 0)])
    part = " + ".join(f"{axis}0 * {stride}" for axis, stride in zip(text.reduce, strides, strict=True))
    text.emit(f"float* mine = partial + ({part}) * {size};")
    text.emit(f"memset(mine, 0, {size} * sizeof(float));")
    for level in range(3):
        braces += text.open(text.level(text.spatial, level))
    braces += text.open(text.level(text.reduce, 1))
    braces += text.open(text.level(text.spatial, 3))
    left, right = (
        f"in{p}[{text.offset(access, text.everything())}]" for p, access in enumerate(text.nest.inputs)
    )
    text.emit(f"mine[{text.offset(text.nest.output, text.everything())}] += {left} * {right};")
    text.close(braces)
    text.emit(f"for (long i = 0; i < {size}; ++i) {{ float sum = 0;")
    text.emit(f"  for (long p = 0; p < {parts}; ++p) sum += partial[p * {size} + i];")
    text.emit("  out[i] = sum; }")


def lanes_of_sums(text: Text) -> None:
    """rfactor by the inner part of the reductions: one sum for each of its steps, added up at each output."""
    inner = text.level(text.reduce, 1)
    width = math.prod(loop.extent for loop in inner)
    if 4 * width > MOST_LOCAL_BYTES:
        raise Unschedulable(f"{width} sums side by side")
    braces = text.open(text.level(text.spatial, 0), text.parallel(), keep_unit=True)
    for level in range(1, 4):
        braces += text.open(text.level(text.spatial, level))
    text.emit(f"float sums[{width}];")
    text.emit(f"memset(sums, 0, {width} * sizeof(float));")
    within = text.open(text.level(text.reduce, 0)) + text.open(inner)
    strides = strides_of([loop.extent for loop in inner])
    lane = " + ".join(f"{loop.variable} * {stride}" for loop, stride in zip(inner, strides, strict=True))
    left, right = (
        f"in{p}[{text.offset(access, text.everything())}]" for p, access in enumerate(text.nest.inputs)
    )
    text.emit(f"sums[{lane}] += {left} * {right};")
    text.close(within)
    text.emit("float sum = 0;")
    text.emit(f"for (int l = 0; l < {width}; ++l) sum += sums[l];")
    text.emit(f"out[{text.offset(text.nest.output, text.everything())}] = sum;")
    text.close(braces)
