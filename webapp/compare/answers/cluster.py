"""Schedulers: which finishes the average job first, what it must know for it, and who comes next."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.units import significant
from webapp.artifacts.workloads.jobs import demand_of
from webapp.compare.answers.case import Case, value
from webapp.compare.answers.words import amount, join_sentences, link, links, longer, say_none
from webapp.compare.entries import Entry
from webapp.compare.needs import devices_of
from webapp.compare.parameters import MUST_KNOW, NOTHING
from webapp.compare.statistics import Estimate
from webapp.navigation import project_url
from webapp.presentation import figure

JCT, MAKESPAN, UNFINISHED = "avg_jct", "makespan", "unfinished_jobs"
RANKED_BY = JCT
RATE = "option.rate"
#: With these a run had other jobs, or others at a time, than the trace tells.
CHANGED = (RATE, "option.limit", "option.window")
#: A share that three digits do not show.
UNSEEN = 5e-4


def ranking(case: Case) -> list[Entry]:
    """The shortest average first, of those that finish every job."""
    return [entry for entry in case.ranked(JCT) if not _count_unfinished(entry)]


def _count_unfinished(entry: Entry) -> float:
    return value(entry, UNFINISHED) if UNFINISHED in entry.estimates else 0.0


def rates(case: Case) -> list[float]:
    """The rates of arrivals that were asked for, ascending; fewer than two are no axis."""
    asked = (entry.parameters.get(RATE) for entry in case.comparison.entries)
    return sorted({float(rate) for rate in asked if rate is not None})


def at_most_load(case: Case) -> tuple[list[Entry], str]:
    """The ranking at the highest of several rates, and words that say so; of one rate all of it."""
    asked = rates(case)
    if len(asked) < 2:
        return ranking(case), ""
    entries = [entry for entry in ranking(case) if float(entry.parameters.get(RATE) or 0) == asked[-1]]
    return entries, f", at {significant(asked[-1])} jobs a second"


def _by_rate(case: Case) -> SafeString:
    """Who leads at the lowest and at the highest rate, or at all of them."""
    led = {rate: _leader(case, rate) for rate in rates(case)}
    found = {rate: entry for rate, entry in led.items() if entry is not None}
    if not found:
        return say_none(case, "schedulers", f"finishes every job of {case.workload}")
    first, last = found[min(found)], found[max(found)]
    at = [
        format_html("{} at {} jobs a second", amount(found[rate], JCT), significant(rate))
        for rate in sorted(found)
    ]
    if len({entry.name for entry in found.values()}) == 1:
        start = format_html("{} finishes the average job soonest at every rate", link(first, case.project))
        return format_html("{}: in {} and {}.", start, at[0], at[-1])
    leads = format_html("{} finishes the average job soonest, in {}", link(first, case.project), at[0])
    return format_html("{}; {} does, in {}.", leads, link(last, case.project), at[-1])


def _leader(case: Case, rate: float) -> Entry | None:
    asked = (entry for entry in ranking(case) if entry.parameters.get(RATE) is not None)
    return next((entry for entry in asked if float(entry.parameters[RATE]) == rate), None)


def headline(case: Case) -> SafeString:
    if len(rates(case)) > 1:
        return _by_rate(case)
    ranked = ranking(case)
    if not ranked:
        return say_none(case, "schedulers", f"finishes every job of {case.workload}")
    best = ranked[0]
    start = format_html("{} finishes the average job in {}", link(best, case.project), amount(best, JCT))
    last = ranked[-1]
    times = value(last, JCT) / value(best, JCT)
    than = format_html(", {} times sooner than {}", significant(times), link(last, case.project))
    found = format_html("{}{}.", start, than if len(ranked) > 2 and times >= 1.1 else "")
    return join_sentences((found, *_runner_up(case, ranked), *_tell_uninformed(case, ranked)))


def _runner_up(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    if len(ranked) < 2:
        return
    best, second = ranked[:2]
    ratio = value(second, JCT) / value(best, JCT)
    close = ", which is within their intervals" if _touch(best.estimates[JCT], second.estimates[JCT]) else ""
    yield format_html("{} takes {}{}.", link(second, case.project), longer(ratio), close)


def _touch(one: Estimate, other: Estimate) -> bool:
    """Whether the intervals of two means have a value in common; single values have none."""
    if one.half_width is None or other.half_width is None:
        return False
    return abs(one.mean - other.mean) <= one.half_width + other.half_width


def _tell_uninformed(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    """A winner that must know what nobody knows is not everybody's."""
    known = ranked[0].parameters[MUST_KNOW]
    if known == NOTHING:
        return
    yield format_html("{} must know {}.", ranked[0].name, known)
    free = next((entry for entry in ranked if entry.parameters[MUST_KNOW] == NOTHING), None)
    if free is not None:
        yield format_html(
            "Of those that need not, {} leads with {}.", link(free, case.project), amount(free, JCT)
        )


def _demand(case: Case) -> Iterator[SafeString]:
    """What the trace asks of the cluster, whatever the scheduler, with the way to its curve; nothing where
    the runs had other jobs than it tells.
    """
    if any(entry.parameters.get(name) is not None for entry in case.comparison.entries for name in CHANGED):
        return
    run, devices = case.comparison.entries[0].run, devices_of(case.comparison.entries[0])
    demand = demand_of(run.artifact, {"gpus": str(devices)}) if run.artifact and devices else None
    if demand is None:
        return
    url = f"{project_url(case.project, 'artifacts:artifact', artifact=run.artifact_id)}?gpus={devices}"
    yield format_html('{} <a href="{}">{}</a>', demand.headline, url, demand.finding)


def _tell_close(case: Case) -> Iterator[SafeString]:
    """At how many rates repeats do not tell the first two apart."""
    asked = [] if case.waiting else rates(case)
    ranked = [
        [one for one in ranking(case) if float(one.parameters.get(RATE) or 0) == rate] for rate in asked
    ]
    close = sum(len(row) > 1 and _touch(row[0].estimates[JCT], row[1].estimates[JCT]) for row in ranked)
    if close:
        yield format_html("At {} of {} rates the first two are within their intervals.", close, len(asked))


def sentences(case: Case) -> Iterator[SafeString]:
    yield from _demand(case)
    if case.waiting or len(rates(case)) > 1:
        yield from _tell_close(case)
        return
    spans = [value(entry, MAKESPAN) for entry in case.having(MAKESPAN)]
    if len(spans) > 1 and min(spans) > 0:
        first, last = figure(min(spans), "s"), figure(max(spans), "s")
        apart = max(spans) / min(spans) - 1
        if apart < UNSEEN:
            yield format_html("The last job ends after {} with every one of them.", first)
        else:
            yield format_html(
                "The last job ends after {} to {}, {} % apart.", first, last, significant(100 * apart)
            )
    lacking = [entry for entry in case.having(JCT) if _count_unfinished(entry)]
    if lacking:
        yield format_html("Some jobs never finish with {}.", links(lacking, case.project))
