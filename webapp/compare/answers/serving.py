"""Serving: which keeps its objective up to the highest rate (of those asked, or as it was searched), or
answers soonest at the one rate asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.metrics import METRICS
from experiments.core.units import significant
from webapp.compare.answers.case import Case, value
from webapp.compare.answers.words import (
    amount,
    enumerate_words,
    join_sentences,
    link,
    longer,
    say_none,
    strong,
)
from webapp.compare.entries import Entry
from webapp.presentation import figure

RATE, SCALE = "option.rate", "option.slo_scale"
ATTAINED, LATENCY, HIGHEST = "slo_attainment", "latency_mean", "max_rate"
RANKED_BY = LATENCY
#: A rate is kept where so many of the requests are within their objective.
KEPT = 0.9


def ranking(case: Case) -> list[Entry]:
    return case.ranked(LATENCY)


def rates(case: Case) -> list[float]:
    """The rates that were asked for, ascending; fewer than two are no axis."""
    return sorted({float(r) for e in case.comparison.entries if (r := e.parameters.get(RATE)) is not None})


def scales(case: Case) -> list[float]:
    """By what objectives were multiplied, ascending; fewer than two are no axis."""
    return sorted({scale_of(entry) for entry in case.comparison.entries})


def scale_of(entry: Entry) -> float:
    return float(entry.parameters.get(SCALE) or 1.0)


def find_sustained(case: Case) -> dict[str, float]:
    """By policy: the highest rate up to which every run kept its objective; 0 where the lowest did not."""
    kept = {name: _kept_until(case, name, rate_of, descending=False) for name in _attaining(case)}
    return {name: rate or 0.0 for name, rate in kept.items()}


def find_narrowest(case: Case) -> dict[str, float | None]:
    """By policy: the scale of objectives from which on every run kept its own; ``None``: not the widest."""
    return {name: _kept_until(case, name, scale_of, descending=True) for name in _attaining(case)}


def _attaining(case: Case) -> Iterable[str]:
    return dict.fromkeys(entry.name for entry in case.having(ATTAINED))


def rate_of(entry: Entry) -> float:
    return float(entry.parameters.get(RATE) or 0)


def _kept_until(case: Case, name: str, asked: Callable[[Entry], float], *, descending: bool) -> float | None:
    """The last of what runs of a policy were asked, in that order, before the first that is not kept."""
    own: dict[float, list[float]] = {}
    for entry in case.having(ATTAINED):
        if entry.name == name:
            own.setdefault(asked(entry), []).append(value(entry, ATTAINED))
    last = None
    for one in sorted(own, reverse=descending):
        if min(own[one]) < KEPT:
            break
        last = one
    return last


def headline(case: Case) -> SafeString:
    if len(case.having(HIGHEST)) > 1:
        return _by_search(case)
    if len(rates(case)) > 1 and case.having(ATTAINED):
        return _by_rate(case)
    if len(scales(case)) > 1 and case.having(ATTAINED):
        return _by_scale(case)
    ranked = ranking(case)
    if not ranked:
        return say_none(case, "policies", f"answers a request of {case.workload}")
    best = ranked[0]
    start = format_html(
        "{} answers a request in {} on average", link(best, case.project), amount(best, LATENCY)
    )
    return join_sentences((format_html("{}.", start), *_runner_up(case, ranked)))


def _by_search(case: Case) -> SafeString:
    """Runs that each searched the rate up to which the share that they want is in time."""
    best, *others = case.ranked(HIGHEST, lambda rate: -rate)
    if not value(best, HIGHEST):
        return strong("No policy keeps its objective at any rate.")
    start = format_html(
        "{} serves up to {} within its objective.",
        link(best, case.project),
        strong(_say_rate(value(best, HIGHEST))),
    )
    told = (format_html("{} up to {}", e.name, significant(value(e, HIGHEST))) for e in others)
    return join_sentences((start, format_html("{}.", join_sentences(told, ", "))))


def _by_rate(case: Case) -> SafeString:
    kept = sorted(find_sustained(case).items(), key=lambda item: -item[1])
    (best, rate), *others = kept
    what = f"{significant(100 * KEPT)} % of its requests within their objective"
    if not rate:
        return strong(f"No policy keeps {what} at {_say_rate(rates(case)[0])}.")
    bound = "at least " if rate == rates(case)[-1] else ""
    found = format_html("{} up to {}{}.", strong(f"{best} keeps {what}"), bound, strong(_say_rate(rate)))
    told = [f"{name} up to {significant(r)}" for name, r in others if r]
    if lost := [name for name, r in others if not r]:
        told.append(f"{enumerate_words(lost)} at none of the rates")
    return join_sentences((found, format_html("{}.", join_sentences(told, ", ")) if others else ""))


def _by_scale(case: Case) -> SafeString:
    found = {name: scale for name, scale in find_narrowest(case).items() if scale is not None}
    what = f"{significant(100 * KEPT)} % of its requests"
    if not found:
        return strong(f"No policy keeps {what} within {significant(scales(case)[-1])} times its objective.")
    (best, scale), *others = sorted(found.items(), key=lambda item: item[1])
    start = strong(f"{best} keeps {what} within {significant(scale)} times its objective.")
    told = [f"{name} within {significant(one)}" for name, one in others]
    if lost := [name for name in _attaining(case) if name not in found]:
        told.append(f"{enumerate_words(lost)} at none of the scales")
    return join_sentences((start, format_html("{}.", join_sentences(told, ", ")) if told else ""))


def _say_rate(rate: float) -> str:
    return f"{significant(rate)} request{'' if rate == 1 else 's'} a second"


def _runner_up(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    if len(ranked) > 1:
        ratio = value(ranked[1], LATENCY) / value(ranked[0], LATENCY)
        yield format_html("{} takes {}.", link(ranked[1], case.project), longer(ratio))


def sentences(case: Case) -> Iterator[SafeString]:
    if case.waiting or not ranking(case) or max(len(rates(case)), len(scales(case))) > 1:
        return
    best = ranking(case)[0]
    for name in ("throughput", "ttft_p99", ATTAINED):
        if name in best.estimates:
            shown = figure(value(best, name), METRICS[name].unit)
            yield format_html("Its {} is {}.", METRICS[name].label, shown)
