"""The operators that have schedules here, as contractions; each names its axes as the papers do."""

from __future__ import annotations

from experiments.compilation.interface.tuning import BufferAccess, Contraction
from experiments.compilation.planning.tuning.sketches import SketchStage


def matmul(rows: int, columns: int, depth: int, batch: int = 1) -> Contraction:
    """out[b, m, n] = sum over k of left[b, m, k] right[b, k, n]; without b where the batch is 1."""
    if batch == 1:
        spatial: tuple[tuple[str, int], ...] = (("m", rows), ("n", columns))
        forms = ({"m": 1}, {"n": 1}), ({"m": 1}, {"k": 1}), ({"k": 1}, {"n": 1})
        sizes: tuple[tuple[int, ...], ...] = (rows, columns), (rows, depth), (depth, columns)
    else:
        spatial = (("b", batch), ("m", rows), ("n", columns))
        forms = tuple(
            ({"b": 1}, *form) for form in (({"m": 1}, {"n": 1}), ({"m": 1}, {"k": 1}), ({"k": 1}, {"n": 1}))
        )  # type: ignore[assignment]
        sizes = (batch, rows, columns), (batch, rows, depth), (batch, depth, columns)
    out, left, right = (
        BufferAccess(name, size, form)
        for name, size, form in zip(("out", "left", "right"), sizes, forms, strict=True)
    )
    return Contraction("matmul", spatial, (("k", depth),), out, (left, right))


def conv2d(
    data: tuple[int, int, int, int],
    weight: tuple[int, int, int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> Contraction:
    """Direct convolution, NCHW in and out, one group.

    The weight is laid out (c, r, q, f) beforehand, f to vectorize.

    Weights are constants of an inference graph, so laying them out costs nothing at run time.
    """
    (n, c, height, width), (f, _, r, q) = data, weight
    padded = (n, c, height + 2 * padding[0], width + 2 * padding[1])
    y = (padded[2] - dilation[0] * (r - 1) - 1) // stride[0] + 1
    x = (padded[3] - dilation[1] * (q - 1) - 1) // stride[1] + 1
    rows, columns = {"y": stride[0], "r": dilation[0]}, {"x": stride[1], "q": dilation[1]}
    image = BufferAccess("data", padded, ({"n": 1}, {"c": 1}, rows, columns), *_padding(data, padding))
    kernel = BufferAccess("weight", (c, r, q, f), ({"c": 1}, {"r": 1}, {"q": 1}, {"f": 1}))
    out = BufferAccess("out", (n, f, y, x), ({"n": 1}, {"f": 1}, {"y": 1}, {"x": 1}))
    spatial = (("n", n), ("y", y), ("x", x), ("f", f))
    return Contraction("conv2d", spatial, (("c", c), ("r", r), ("q", q)), out, (image, kernel))


def _padding(data: tuple[int, ...], padding: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (data, (0, 0, *padding)) if any(padding) else ((), ())


def stages_of(nest: Contraction) -> tuple[SketchStage, ...]:
    """Return the stages from which sketches are derived.

    The padding, where there is one, and the contraction.

    Padding reads through a condition and is therefore not inlined.
    """
    padded = [SketchStage(f"padded {access.buffer}", 1) for access in nest.inputs if access.inside]
    spatial = reduce = 1
    for _, extent in nest.spatial:
        spatial *= extent
    for _, extent in nest.reduce:
        reduce *= extent
    return (*padded, SketchStage(nest.operator, spatial, reduce, reuses=True))
