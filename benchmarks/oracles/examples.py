"""Small tile graphs in which operators are worth connecting: what searches over connections are
checked on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.compilation.interface.expressions import Expression, Sizes
from experiments.compilation.interface.tile_graph import TileGraph, TileNode
from experiments.compilation.planning.tiles import operators


def _graph(*rows: tuple[str, Expression, tuple[str, ...]]) -> TileGraph:
    """Rows of a name, an operator and who makes its inputs; the last one's result is kept."""
    return TileGraph(tuple(TileNode(*row) for row in rows), frozenset({rows[-1][0]}))


def layer(size: int = 1024) -> TileGraph:
    """A product, a bias over its columns, a rectifier."""
    shape = (size, size)
    return _graph(
        ("product", operators.matmul(size, size, size), ("", "")),
        ("bias", operators.elementwise(shape, (shape, (size,))), ("product", "")),
        ("relu", operators.elementwise(shape), ("bias",)),
    )


def attention(heads: int = 12, tokens: int = 128, depth: int = 64) -> TileGraph:
    """Scores, scaled and masked, softmax over whole rows, and the weighted sum of values."""
    shape = (heads, tokens, tokens)
    return _graph(
        ("scores", operators.matmul(tokens, tokens, depth, batch=(heads,), transposed=True), ("", "")),
        ("scale", operators.elementwise(shape), ("scores",)),
        ("mask", operators.elementwise(shape, (shape, (tokens, tokens))), ("scale", "")),
        ("softmax", operators.rowwise(shape, (2,)), ("mask",)),
        ("sum", operators.matmul(tokens, depth, tokens, batch=(heads,)), ("softmax", "")),
    )


def residual_block(channels: int = 32, side: int = 28) -> TileGraph:
    """Two convolutions next to a shortcut: the first rectifier's result is needed twice."""
    shape = (1, channels, side, side)
    return _graph(
        ("relu0", operators.elementwise(shape), ("",)),
        ("conv1", _convolution(channels, channels, side, 3), ("relu0", "")),
        ("relu1", operators.elementwise(shape), ("conv1",)),
        ("conv2", _convolution(channels, channels, side, 1), ("relu1", "")),
        ("add", operators.elementwise(shape, (shape, shape)), ("conv2", "relu0")),
        ("relu2", operators.elementwise(shape), ("add",)),
    )


def inverted_residual(channels: int = 64, side: int = 28) -> TileGraph:
    """A depthwise convolution between two of 1x1."""
    shape, wide = (1, channels, side, side), (1, 2 * channels, side, side)
    return _graph(
        ("expand", _convolution(channels, 2 * channels, side, 1), ("", "")),
        ("relu1", operators.elementwise(wide), ("expand",)),
        ("deep", _convolution(2 * channels, 2 * channels, side, 3, groups=2 * channels), ("relu1", "")),
        ("relu2", operators.elementwise(wide), ("deep",)),
        ("project", _convolution(2 * channels, channels, side, 1), ("relu2", "")),
        ("add", operators.elementwise(shape, (shape, shape)), ("project", "")),
    )


def mlp_block(tokens: int = 512, width: int = 768) -> TileGraph:
    """A transformer's normalization and perceptron with its shortcut."""
    shape: Sizes = (tokens, width)
    wide = (tokens, 4 * width)
    return _graph(
        ("add", operators.elementwise(shape, (shape, shape)), ("", "")),
        ("norm", operators.rowwise(shape, (1,), parameters=2), ("add", "", "")),
        ("up", operators.linear((tokens,), width, 4 * width), ("norm", "")),
        ("gelu", operators.elementwise(wide), ("up",)),
        ("down", operators.linear((tokens,), 4 * width, width), ("gelu", "")),
        ("sum", operators.elementwise(shape, (shape, shape)), ("down", "add")),
    )


def _convolution(channels: int, filters: int, side: int, kernel: int, groups: int = 1) -> Expression:
    """A square convolution that keeps its image's size."""
    return operators.convolution(
        1, channels, (side, side), filters, (kernel, kernel), padding=(kernel // 2,) * 2, groups=groups
    )


EXAMPLES: Mapping[str, Callable[[], TileGraph]] = {
    "layer": layer,
    "attention": attention,
    "residual block": residual_block,
    "inverted residual": inverted_residual,
    "perceptron block": mlp_block,
}
