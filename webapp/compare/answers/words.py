"""Phrases of an answer. Names are escaped, figures have their exact value on hover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from experiments.core.metrics import METRICS
from experiments.core.units import significant
from webapp.accounts.models import Project
from webapp.compare.answers.case import Case
from webapp.compare.entries import Entry
from webapp.navigation import project_url
from webapp.presentation import figure

#: So many names are said; of more the number.
NAMED = 4


def link(entry: Entry, project: Project) -> SafeString:
    """The run's policy in bold, leading to its run."""
    url = project_url(project, "runs:run", run=entry.run.pk)
    return format_html('<a href="{}"><strong>{}</strong></a>', url, entry.name)


def links(entries: Sequence[Entry], project: Project, most: int = NAMED) -> SafeString:
    """``a, b and c``, or ``a, b and 3 more``, each leading to its run."""
    shown = entries if len(entries) <= most + 1 else entries[:most]
    found = [
        format_html('<a href="{}">{}</a>', project_url(project, "runs:run", run=e.run.pk), e.name)
        for e in shown
    ]
    more = len(entries) - len(shown)
    return enumerate_words([*found, format_html("{} more", more)] if more else found)


def enumerate_words(words: Sequence[Any]) -> SafeString:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = words
    return format_html("{} and {}", join_sentences(first, ", "), last) if first else format_html("{}", last)


def amount(entry: Entry, metric: str) -> SafeString:
    """A figure of a run in bold, in its unit."""
    return strong(figure(entry.estimates[metric].mean, METRICS[metric].unit))


def strong(text: Any) -> SafeString:
    return format_html("<strong>{}</strong>", text)


def join_sentences(sentences: Iterable[str], between: str = " ") -> SafeString:
    return format_html_join(between, "{}", ((one,) for one in sentences))


def longer(ratio: float) -> str:
    """How much longer ``ratio`` times is: ``as long``, ``12 % longer``, ``3.2 times as long``."""
    if ratio < 1.0005:
        return "as long"
    return (
        f"{significant(100 * (ratio - 1))}\u00a0% longer"
        if ratio < 2
        else f"{significant(ratio)}\u00a0times as long"
    )


def say_none(case: Case, what: str, does: str) -> SafeString:
    """``None of 3 policies fits ...``; those that ended without an answer are not among them."""
    told = len(case.done) + len(case.misfits)
    count = f"{told} {what}" if told == case.total else f"the {told} {what} with an answer (of {case.total})"
    return strong(f"None of {count} {does}." if told else f"None of {case.total} {what} gave an answer.")


def say_count(count: int, one: str, several: str) -> str:
    """``1 does not fit``, ``3 do not fit``."""
    return f"{count} {one if count == 1 else several}"
