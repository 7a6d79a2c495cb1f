"""Whether repeats tell the best from the others: a mean that is lower by chance is no finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from webapp.compare.answers.case import Case
from webapp.compare.answers.words import link, links
from webapp.compare.entries import Entry
from webapp.compare.statistics import chance_of_ranks
from webapp.presentation import metric_label

#: So many repeats can differ by more than chance; a chance that is larger is no difference.
FEWEST, CHANCE = 4, 0.05


def sentences(case: Case, ranked: Sequence[Entry], metric: str) -> Iterator[SafeString]:
    """Those that repeats do not tell from the best, of the same question."""
    if case.waiting or not ranked:
        return
    best, *others = ranked
    alike = [one for one in others if one.question == best.question and _is_chance(best, one, metric)]
    if alike:
        yield format_html(
            "Repeats do not tell {} from {} by {} (Mann-Whitney, chance above 5 %).",
            links(alike, case.project),
            link(best, case.project),
            metric_label(metric),
        )


def _is_chance(best: Entry, other: Entry, metric: str) -> bool:
    first, second = _values(best, metric), _values(other, metric)
    return min(len(first), len(second)) >= FEWEST and chance_of_ranks(first, second) > CHANCE


def _values(entry: Entry, metric: str) -> list[float]:
    return [run.figures[metric] for run in entry.runs if metric in run.figures]
