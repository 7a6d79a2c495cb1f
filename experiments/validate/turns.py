"""A run that happened several times, each foretold by what was timed around it: the middle error.

What a shared host's other guests do to a run is no error of what foretold it, and nobody can see it from
within: the same run again, minutes later, says how much of an error is theirs. Each run is compared with what
short runs just before and after it foretell, and the turn whose error is the middle one stands for the cell.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from scipy.stats import binom

from experiments.serving.experiment.measured import Turn
from experiments.validate.cells import Figure, compare

#: How sure one can be that the middle error of ever more turns lies in what is told of these.
CONFIDENCE = 0.9


def middle_of(turns: Sequence[Turn]) -> tuple[dict[str, Figure], dict[str, float]]:
    """Return each figure from the turn whose error is the middle one, and the middle of each metric seen."""
    compared = [compare(turn.seen, turn.foretold) for turn in turns]
    figures = {name: _middle([one[name] for one in compared]) for name in compared[0]}
    names = set.intersection(*(set(turn.seen) for turn in turns))
    metrics = {
        name: statistics.median_low(turn.seen[name] for turn in turns)
        for name in turns[0].seen
        if name in names
    }
    return figures, metrics


def ranges_of(turns: Sequence[Turn]) -> dict[str, Mapping[str, Sequence[float]]]:
    """The least and the largest foretold, measured and wrong by, and the interval of the middle error."""
    compared = [compare(turn.seen, turn.foretold) for turn in turns]
    columns = {
        kind: {name: _known([one[name][kind] for one in compared]) for name in compared[0]}
        for kind in ("predicted", "measured", "error")
    }
    ranges = {
        f"{kind}_range": {name: _range(values) for name, values in column.items()}
        for kind, column in columns.items()
    }
    return {
        **ranges,
        "error_interval": {name: _interval(values) for name, values in columns["error"].items()},
    }


def _middle(found: Sequence[Figure]) -> Figure:
    known = sorted((one for one in found if one["error"] is not None), key=lambda one: one["error"] or 0.0)
    return known[(len(known) - 1) // 2] if known else found[0]


def _known(values: Sequence[float | None]) -> Sequence[float]:
    return [value for value in values if value is not None]


def _range(values: Sequence[float]) -> Sequence[float]:
    return [min(values), max(values)] if values else []


def _interval(values: Sequence[float]) -> Sequence[float]:
    """The confidence interval of a median by ranks, which assumes no distribution; of few the range.

    Turns that follow each other share a short run, and are not independent: of 25 that are drawn so it has
    the middle of ever more in 94 of a hundred, of independent ones in 96.
    """
    rank = max(1, int(binom.ppf((1 - CONFIDENCE) / 2, len(values), 0.5)))
    ordered = sorted(values)
    return [ordered[rank - 1], ordered[-rank]] if values else []
