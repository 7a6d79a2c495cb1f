"""What a comparison tells of the runs that fell out: what each lacks, why, and the ways out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.units import human
from webapp.compare.answer import FAMILIES, Answer
from webapp.compare.answers.case import Case
from webapp.compare.answers.causes import Cause
from webapp.compare.answers.words import link, say_count
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import look_of, mechanism_of
from webapp.navigation import project_url
from webapp.runs.models import Experiment


@dataclass(frozen=True)
class Bar:
    """What a run lacks, in bytes and as a share of what the neediest lacks in per cent."""

    entry: Entry
    missing: float
    width: str
    color: str


@dataclass(frozen=True)
class Fallen:
    title: str
    bars: tuple[Bar, ...]
    causes: tuple[Cause, ...]
    ways_out: tuple[SafeString, ...]

    @property
    def least(self) -> float | None:
        return self.bars[0].missing if self.bars else None

    @property
    def most(self) -> float | None:
        return self.bars[-1].missing if self.bars else None


def fallen_of(answer: Answer, experiment: Experiment | None) -> Fallen | None:
    """``None`` where every run that ended has an answer."""
    case = answer.case
    if not answer.causes:
        return None
    told = [say_count(len(case.misfits), "does not fit", "do not fit")] if case.misfits else []
    told += [f"{len(case.wrong)} gave no answer"] if case.wrong else []
    return Fallen(", ".join(told), _bars(case), answer.causes, tuple(_ways_out(answer, experiment)))


def _bars(case: Case) -> tuple[Bar, ...]:
    """What is missing, the least first."""
    lacks = [
        (need - case.capacity, entry)
        for entry in case.misfits
        if (need := case.need(entry).memory) and case.capacity
    ]
    lacks = sorted((pair for pair in lacks if pair[0] > 0), key=lambda pair: pair[0])
    most = lacks[-1][0] if lacks else 1.0
    return tuple(_bar(entry, missing, most, case.comparison.family) for missing, entry in lacks)


def _bar(entry: Entry, missing: float, most: float, family: str) -> Bar:
    return Bar(entry, missing, f"{100 * missing / most:.2f}", look_of(mechanism_of(entry), family)["color"])


def _ways_out(answer: Answer, experiment: Experiment | None) -> Iterator[SafeString]:
    """What fits as it is asked, what memory the least needy asks for, and another question."""
    case = answer.case
    ranked = FAMILIES[case.comparison.family].ranking(case)
    if ranked and not case.waiting:
        yield format_html("{} fits here", link(ranked[0], case.project))
    bars = _bars(case)
    if bars and case.capacity is not None:
        ends = [human(case.capacity + bar.missing, "bytes") for bar in (bars[0], bars[-1])]
        yield format_html(
            "devices of {} (for {}) to {} (for {})", ends[0], bars[0].entry.name, ends[1], bars[-1].entry.name
        )
    if experiment is not None:
        url = f"{project_url(case.project, 'runs:new')}?from={experiment.pk}"
        yield format_html('<a href="{}">the same with fewer samples a step or other hardware</a>', url)
