"""Schedulers: which finishes the average job first, what it must know for it, and who comes next."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.cluster.interface import ClusterPolicy
from experiments.core.units import significant
from webapp.compare.answers.case import Case, policy_of, value
from webapp.compare.answers.words import amount, joined, link, links, longer, strong
from webapp.compare.comparison import Entry
from webapp.compare.statistics import Estimate
from webapp.presentation import figure

JCT, MAKESPAN, UNFINISHED = "avg_jct", "makespan", "unfinished_jobs"
RANKED_BY = JCT
#: Columns of a trace that users seldom know beforehand, as they are called in a sentence.
KNOWLEDGE = {"service": "how long jobs run", "deadline": "deadlines", "model": "models"}


def ranking(case: Case) -> list[Entry]:
    """The shortest average first, of those that finish every job."""
    return [entry for entry in case.ranked(JCT) if not _unfinished(entry)]


def _unfinished(entry: Entry) -> float:
    return value(entry, UNFINISHED) if UNFINISHED in entry.estimates else 0.0


def must_know(entry: Entry) -> tuple[str, ...]:
    """What the scheduler is told of jobs beyond their submission and their GPUs."""
    policy = policy_of(entry)
    seen = policy.sees if policy and issubclass(policy, ClusterPolicy) else frozenset()
    return tuple(KNOWLEDGE.get(column, column) for column in sorted(seen))


def headline(case: Case) -> SafeString:
    ranked = ranking(case)
    if not ranked:
        return strong(f"None of {case.total} schedulers finishes every job of {case.workload}.")
    best = ranked[0]
    start = format_html("{} finishes the average job in {}", link(best, case.project), amount(best, JCT))
    last = ranked[-1]
    times = value(last, JCT) / value(best, JCT)
    than = format_html(", {} times sooner than {}", significant(times), link(last, case.project))
    found = format_html("{}{}.", start, than if len(ranked) > 2 and times >= 1.1 else "")
    return joined((found, *_runner_up(case, ranked), *_uninformed(case, ranked)))


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


def _uninformed(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    """A winner that must know what nobody knows is not everybody's."""
    if not must_know(ranked[0]):
        return
    yield format_html("{} must know {}.", ranked[0].name, " and ".join(must_know(ranked[0])))
    free = next((entry for entry in ranked if not must_know(entry)), None)
    if free is not None:
        yield format_html(
            "Of those that need not, {} leads with {}.", link(free, case.project), amount(free, JCT)
        )


def sentences(case: Case) -> Iterator[SafeString]:
    if case.waiting:
        return
    spans = [value(entry, MAKESPAN) for entry in case.having(MAKESPAN)]
    if len(spans) > 1 and min(spans) > 0:
        ends = (
            figure(min(spans), "s"),
            figure(max(spans), "s"),
            significant(100 * (max(spans) / min(spans) - 1)),
        )
        yield format_html("The last job ends after {} to {}, {} % apart.", *ends)
    lacking = [entry for entry in case.having(JCT) if _unfinished(entry)]
    if lacking:
        yield format_html("Some jobs never finish with {}.", links(lacking, case.project))
