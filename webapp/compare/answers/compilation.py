"""Compilers: which is faster than eager beyond doubt, by how much, and what compiling costs."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.differences import EQUAL, NO_DIFFERENCE
from experiments.core.units import significant
from webapp.compare.answers.case import Case, policy_of, value
from webapp.compare.answers.words import amount, join_sentences, link, links, say_none, strong
from webapp.compare.entries import Entry
from webapp.compare.statistics import Estimate

SPEEDUP, COMPILE, BREAK_EVEN = "speedup", "compile_time", "break_even"
RANKED_BY = SPEEDUP
#: The mechanism of what compiles nothing.
AS_IT_IS = "as it is"


def ranking(case: Case) -> list[Entry]:
    """The largest speed-up first; one whose interval holds 1 is 1."""
    return case.ranked(SPEEDUP, lambda ratio: -ratio)


def headline(case: Case) -> SafeString:
    faster = [entry for entry in ranking(case) if value(entry, SPEEDUP) > EQUAL]
    if not faster:
        return say_none(case, "compilers", f"is seen to run {case.workload} faster than eager")
    best = faster[0]
    name = link(best, case.project)
    ratio = strong(f"{significant(value(best, SPEEDUP))} times")
    found = format_html(
        "{} {} as fast as eager{}.",
        format_html("{} runs {}", name, strong(case.workload)),
        ratio,
        _interval(best),
    )
    return join_sentences((found, *_cost(best), *_runner_up(case, faster)))


def is_eager(entry: Entry) -> bool:
    """Whether it is what the others are compared with."""
    policy = policy_of(entry)
    return policy is not None and policy.mechanism == AS_IT_IS


def _interval(entry: Entry) -> str:
    own = entry.estimates[SPEEDUP]
    return "" if own.low is None or own.high is None else f" ({own.low:.2f} to {own.high:.2f})"


def _cost(best: Entry) -> Iterator[SafeString]:
    if COMPILE not in best.estimates:
        return
    paid = (
        format_html(", paid back after {}", amount(best, BREAK_EVEN)) if BREAK_EVEN in best.estimates else ""
    )
    yield format_html("Compiling takes {}{}.", amount(best, COMPILE), paid)


def _runner_up(case: Case, faster: list[Entry]) -> Iterator[SafeString]:
    if len(faster) < 2:
        return
    best, second = faster[:2]
    ratio = format_html("{} times{}", strong(significant(value(second, SPEEDUP))), _interval(second))
    apart = (
        "; their intervals overlap" if _overlap(best.estimates[SPEEDUP], second.estimates[SPEEDUP]) else ""
    )
    yield format_html("{} follows with {}{}.", link(second, case.project), ratio, apart)


def _overlap(one: Estimate, other: Estimate) -> bool:
    ends = (one.low, one.high, other.low, other.high)
    if None in ends:
        return False
    return max(one.low or 0, other.low or 0) <= min(one.high or 0, other.high or 0)


def sentences(case: Case) -> Iterator[SafeString]:
    if case.waiting:
        return
    ranked = ranking(case)
    unseen = [entry for entry in ranked if entry.estimates[SPEEDUP].is_unseen and not is_eager(entry)]
    slower = [entry for entry in ranked if value(entry, SPEEDUP) < EQUAL]
    if unseen:
        yield format_html(
            "{} between eager and {}.", strong(NO_DIFFERENCE.capitalize()), links(unseen, case.project)
        )
    if slower:
        yield format_html("Slower than eager: {}.", links(slower, case.project))
