"""A run that happened several times, foretold by short runs between them: the middle error.

What a shared host's other guests do to a run is no error of what foretold it. A meter says how fast the host
was, and the same run again, minutes later, how much of an error is chance. The turn whose error is the middle
one stands for the cell.
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


def ranges_of(turns: Sequence[Turn]) -> dict[str, Mapping[str, Sequence[float] | float | None]]:
    """The least and the largest foretold, measured and wrong by, and the interval of the middle error.

    ``blind_error`` is the middle one of what is foretold at the pace of the short runs around each turn.
    """
    compared = [compare(turn.seen, turn.foretold) for turn in turns]
    blind = [compare(turn.seen, turn.blind) for turn in turns]
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
        "blind_error": {name: _middle([one[name] for one in blind])["error"] for name in blind[0]},
        "pace_range": {"pace": _range([turn.pace for turn in turns])},
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

    All turns share their short runs: it says how sure the middle of more turns with these is.
    """
    rank = max(1, int(binom.ppf((1 - CONFIDENCE) / 2, len(values), 0.5)))
    ordered = sorted(values)
    return [ordered[rank - 1], ordered[-rank]] if values else []
