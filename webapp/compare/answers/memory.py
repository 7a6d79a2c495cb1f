"""Memory policies: which is the fastest that fits a device, and what it costs against endless memory."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.units import significant
from webapp.compare.answers.case import Case, value
from webapp.compare.answers.words import (
    amount,
    join_sentences,
    link,
    links,
    longer,
    say_count,
    say_none,
    strong,
)
from webapp.compare.entries import Entry
from webapp.compare.statistics import pareto_front
from webapp.presentation import figure

MEMORY, TIME, IDEAL = "peak_memory", "step_time", "ideal_step_time"
RANKED_BY = TIME


def ranking(case: Case) -> list[Entry]:
    """The fastest first; of equals the leanest, then the one that changes nothing."""
    found = case.having(TIME, MEMORY)
    return sorted(found, key=lambda e: (value(e, TIME), value(e, MEMORY), e is not case.baseline))


def headline(case: Case) -> SafeString:
    ranked = ranking(case)
    if not ranked:
        return _nothing_fits(case)
    best = ranked[0]
    if best is case.baseline:
        start = format_html("{} as it is:", strong(f"{case.workload} fits {case.where}"))
    else:
        start = format_html(
            "{} {}:", strong(f"{case.workload} trains on {case.where} with"), link(best, case.project)
        )
    cost = format_html(
        "{} and {} a step{}.", figure(value(best, MEMORY), "bytes"), amount(best, TIME), _slower(best)
    )
    return join_sentences((start, cost, *_runner_up(case, ranked)))


def _nothing_fits(case: Case) -> SafeString:
    said = say_none(case, "policies", f"fits {case.workload} on {case.where}")
    needs = [(size, entry) for entry in case.misfits if (size := case.need(entry).memory)]
    if not needs or not case.capacity:
        return said
    least, nearest = min(needs, key=lambda need: need[0])
    lack = figure(least - case.capacity, "bytes")
    return format_html("{} {} lacks least, {}.", said, link(nearest, case.project), lack)


def _slower(best: Entry) -> str:
    if IDEAL not in best.estimates or not best.estimates[IDEAL].mean:
        return ""
    ratio = value(best, TIME) / value(best, IDEAL)
    if ratio < 1.0005:
        return ", as fast as with endless memory"
    return f", {significant(ratio)} times the time with endless memory"


def _runner_up(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    """The next in time that is not the same plan under another name."""
    best = ranked[0]
    others = [entry for entry in ranked[1:] if _point(entry) != _point(best)]
    if not others:
        return
    next_best = others[0]
    less = value(best, MEMORY) - value(next_best, MEMORY)
    leaves = (
        "needs as much"
        if less == 0
        else format_html("needs {} {}", figure(abs(less), "bytes"), "less" if less > 0 else "more")
    )
    ratio = value(next_best, TIME) / value(best, TIME)
    yield format_html("{} takes {} and {}.", link(next_best, case.project), longer(ratio), leaves)


def sentences(case: Case) -> Iterator[SafeString]:
    yield from _as_it_is(case)
    if case.waiting:
        return
    ranked = ranking(case)
    if ranked:
        front = pareto_front([_point(entry) for entry in ranked], (True, True))
        yield format_html(
            "{} of {} policies {}, {} of them on the Pareto front.",
            strong(len(ranked)), case.total, "fits" if len(ranked) == 1 else "fit", len(front),
        )  # fmt: skip
        yield from _others_best(case, ranked)
    same = [e for e in ranked if case.baseline in ranked and e is not case.baseline]
    idle = [e for e in same if case.baseline and _point(e) == _point(case.baseline)]
    if idle:
        changes = say_count(len(idle), "changes", "change")
        yield format_html(
            "{} nothing, because the step fits as it is: {}.", changes, links(idle, case.project)
        )


def _as_it_is(case: Case) -> Iterator[SafeString]:
    base = case.baseline
    if base is None or base in case.waiting:
        return
    needs = case.need(base).as_it_is or (value(base, MEMORY) if MEMORY in base.estimates else None)
    if needs is None:
        return
    fits = base in case.done
    verdict = format_html(
        '<span class="{}">{}</span>', *(("good", "✓ fits") if fits else ("bad", "✗ does not fit"))
    )
    yield format_html("As it is the step needs {} and {}.", strong(figure(needs, "bytes")), verdict)


def _others_best(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    """What needs least, and the best trade-off, where that is not the fastest."""
    least = min(ranked, key=lambda entry: (value(entry, MEMORY), value(entry, TIME)))
    even = min(ranked, key=lambda entry: value(entry, MEMORY) * value(entry, TIME))
    told = [("needs least", least), ("has the smallest product of memory and time", even)]
    for words, entry in told:
        if entry is not ranked[0]:
            figures = (amount(entry, MEMORY), amount(entry, TIME))
            yield format_html("{} {}: {} and {}.", link(entry, case.project), words, *figures)


def _point(entry: Entry) -> tuple[float, float]:
    return value(entry, TIME), value(entry, MEMORY)
