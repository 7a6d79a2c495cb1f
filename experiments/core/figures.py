"""A claim's figure: arithmetic over the metrics of runs, and the interval that repeats leave it."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments.core.differences import interval_of
from experiments.core.errors import BadInput

#: What a figure can name: metrics by run.
Metrics = Mapping[str, Mapping[str, float]]
#: How often what is measured with noise is repeated, with a seed of its own each time, ...
REPEATS = 3
#: ... and Student's t of as many, two-sided 95 %.
STUDENT = 4.303


class Figure(NamedTuple):
    """Our figure for a claim, with the ends of its interval where noise was measured.

    They are both ``None`` for a figure without noise, and for one whose noise nobody measured.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the interval; twice the value where there is none."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high


_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def names_in(figure: str, where: str = "figure") -> list[tuple[str, str]]:
    """Return the ``(run, metric)`` pairs that a figure mentions.

    ``BadInput`` where it is no arithmetic.
    """
    try:
        tree = ast.parse(figure, mode="eval")
    except SyntaxError as error:
        raise BadInput(f"{figure!r}: {error.msg}", where, "arithmetic over run.metric") from None
    return [
        (n.value.id, n.attr)
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    ]


def evaluate(figure: str, metrics: Metrics) -> float:
    """Return the value of a figure with the metrics of its runs.

    A figure is numbers, ``run.metric``, + - * / ** and parentheses. ``KeyError`` names a missing metric.
    """

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return metrics[node.value.id][node.attr]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        raise BadInput(f"{ast.unparse(node)!r} is not allowed", figure, "numbers, run.metric, + - * / **")

    return value(ast.parse(figure, mode="eval").body)


def mean_of_repeats(values: Sequence[float], is_ratio: bool = False) -> Figure:
    """Return the mean of a figure over repeats, with its 95 % interval where there are ``REPEATS``.

    Ratios have a geometric one: twice as fast and half as fast are none, and an interval stays above 0.
    """
    if len(values) != REPEATS:
        return Figure(statistics.fmean(values))
    if is_ratio and min(values) > 0:
        logarithms = mean_of_repeats([math.log(value) for value in values])
        return Figure(math.exp(logarithms.value), *map(math.exp, logarithms.interval))
    mean = statistics.fmean(values)
    half = STUDENT * statistics.stdev(values) / math.sqrt(REPEATS)
    return Figure(mean, mean - half, mean + half)


def ends_of(figure: str, metrics: Metrics) -> tuple[float, float] | None:
    """Return the least and the greatest value of a figure over the intervals that its ratios have.

    ``None`` where none of the metrics that it names has one.
    """
    named = dict.fromkeys(names_in(figure))
    known = {(run, name): interval_of(name, metrics.get(run, {})) for run, name in named}
    noisy = {pair: interval for pair, interval in known.items() if interval is not None}
    if not noisy:
        return None
    values = []
    for corner in itertools.product(*noisy.values()):
        moved = {run: dict(row) for run, row in metrics.items()}
        for (run, name), end in zip(noisy, corner, strict=True):
            moved[run][name] = end
        values.append(evaluate(figure, moved))
    return min(values), max(values)


def with_noise_inside(ours: Figure, ends: Sequence[tuple[float, float] | None]) -> Figure:
    """Return ``ours`` with an interval that is never narrower than the mean one of single runs."""
    known = [interval for interval in ends if interval is not None]
    if ours.low is None or ours.high is None or not known:
        return ours
    low, high = (statistics.fmean(side) for side in zip(*known, strict=True))
    return Figure(ours.value, min(ours.low, low), max(ours.high, high))
