"""Parallel plans: which trains fastest on a cluster, at what share of its peak and in how much memory."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html
from django.utils.safestring import SafeString

from webapp.compare.answers.case import Case, value
from webapp.compare.answers.words import amount, join_sentences, link, longer, say_none, strong
from webapp.compare.entries import Entry
from webapp.presentation import figure

TIME, RATE, MEMORY, MFU, STALE = (
    "step_time", "samples_per_second", "peak_memory_per_device", "mfu", "staleness_mean",
)  # fmt: skip
RANKED_BY = RATE


def ranking(case: Case) -> list[Entry]:
    """Most samples a second first: plans may differ in the samples of a step."""
    return case.ranked(RATE, lambda rate: -rate)


def headline(case: Case) -> SafeString:
    ranked = ranking(case)
    if not ranked:
        return say_none(case, "plans", f"fits {case.workload} on {case.where}")
    best = ranked[0]
    start = strong(f"{case.workload} trains fastest on {case.where} with")
    found = format_html(
        "{} {}: {} a step{}.", start, link(best, case.project), amount(best, TIME), _costs(best)
    )
    return join_sentences((found, *_late(case, ranked), *_runner_up(case, ranked)))


def _costs(best: Entry) -> SafeString:
    """What it makes of the devices, and what it takes of them."""
    parts = [""]
    if MFU in best.estimates:
        parts.append(format_html("{} of peak FLOP/s", figure(value(best, MFU), "fraction")))
    if MEMORY in best.estimates:
        parts.append(format_html("{} on the fullest device", figure(value(best, MEMORY), "bytes")))
    if _staleness(best):
        parts.append(format_html("gradients {} late on average", figure(_staleness(best), "updates")))
    return join_sentences(parts, ", ")


def _late(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    """A plan with late gradients is another training; the best without is told too."""
    on_time = next((entry for entry in ranked if not _staleness(entry)), None)
    if on_time is not None and _staleness(ranked[0]):
        told = (link(on_time, case.project), amount(on_time, TIME))
        yield format_html("Of those without delay {} leads with {}.", *told)


def _runner_up(case: Case, ranked: list[Entry]) -> Iterator[SafeString]:
    others = [entry for entry in ranked[1:] if value(entry, RATE) < value(ranked[0], RATE)]
    if not others:
        return
    ratio = value(ranked[0], RATE) / value(others[0], RATE)
    yield format_html("{} takes {}{}.", link(others[0], case.project), longer(ratio), _costs(others[0]))


def _staleness(entry: Entry) -> float:
    return value(entry, STALE) if STALE in entry.estimates else 0.0


def sentences(case: Case) -> Iterator[SafeString]:
    if case.waiting or not case.done:
        return
    yield format_html("{} of {} policies fit.", strong(len(case.done)), case.total)
    equal = [e for e in ranking(case)[1:] if value(e, RATE) == value(ranking(case)[0], RATE)]
    if equal:
        yield format_html(
            "As fast: {}.", join_sentences((link(entry, case.project) for entry in equal), ", ")
        )
    leanest = min(case.having(MEMORY), key=lambda entry: value(entry, MEMORY), default=None)
    if leanest is not None and leanest is not ranking(case)[0]:
        figures = (amount(leanest, MEMORY), amount(leanest, TIME))
        yield format_html("{} needs least memory: {} at {} a step.", link(leanest, case.project), *figures)
