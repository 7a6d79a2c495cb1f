"""The catalog and a system's claims as tables: on the page and exported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import django_tables2 as tables
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp import presentation
from webapp.compare.export_table import Column, Table
from webapp.compare.listing import FigureColumn, Listing
from webapp.compare.templatetags.comparison import change
from webapp.navigation import project_url
from webapp.papers.catalog import System
from webapp.presentation import STATE_MARKS

#: Columns that a phone leaves out.
WIDE = {"th": {"class": "wide"}, "td": {"class": "wide"}}


class SystemTable(Listing):
    """The catalog. Rows that ``sought`` is not in are there, out of sight, for when the search changes."""

    class Meta:
        row_attrs = {
            "data-words": lambda record: record.words,
            "hidden": lambda record, table: None if table.sought in record.words else "hidden",
        }

    title = "Systems"
    sought = ""
    name = tables.Column(verbose_name="System")
    family = tables.Column(verbose_name="Family", attrs=WIDE)
    title_of_paper = tables.Column(accessor="paper__title", verbose_name="Title", visible=False)
    venue = tables.Column(accessor="paper__venue", verbose_name="Venue", attrs=WIDE)
    year = tables.Column(accessor="paper__year", verbose_name="Year", attrs=WIDE)
    decides = tables.Column(
        accessor="paper__decides",
        verbose_name="What it decides",
        empty_values=(),
        orderable=False,
        attrs=WIDE,
    )
    modes = tables.Column(accessor="policy__modes", verbose_name="Can be", orderable=False, attrs=WIDE)
    verdicts = tables.Column(verbose_name="Claims, one cell each", orderable=False)
    furthest = FigureColumn(verbose_name="Furthest from the paper", unit="fraction")
    runs = FigureColumn(verbose_name="Runs", visible=False)

    def render_name(self, value: str, record: System) -> str:
        url = project_url(self.request.project, "papers:system", family=record.family, policy=value)
        return format_html('<a href="{}"><strong>{}</strong></a>', url, value)

    def value_name(self, value: str) -> str:
        return value

    def render_decides(self, value: Any, record: System) -> str:
        return value or record.policy.summary()

    def value_decides(self, value: Any, record: System) -> str:
        return value or record.policy.summary()

    def render_modes(self, value: tuple[str, ...]) -> str:
        return mode_badges(self.request, value)

    def value_modes(self, value: tuple[str, ...]) -> str:
        return ", ".join(value)

    def render_verdicts(self, record: System) -> str:
        return cells(record)

    def render_furthest(self, value: float) -> str:
        return format_html('<span class="num" title="{}">{}</span>', presentation.exact(value), change(value))

    def value_verdicts(self, value: Any) -> str:
        return ", ".join(f"{count} {name}" for name, count in value.items())


def mode_badges(request: HttpRequest, modes: Iterable[str]) -> SafeString:
    return format_html_join(" ", "{}", ((presentation.mode_badge(request, mode),) for mode in modes))


def cells(system: System) -> SafeString:
    """One cell for each claim: color and sign of its verdict, both in words on hover."""
    told = (
        (row.tone, f"{row.claim.text}: {row.verdict.verdict}", STATE_MARKS[row.verdict.verdict])
        for row in system.rows
    )
    found = format_html_join("", '<span class="cell tone-{}" title="{}">{}</span>', told)
    words = ", ".join(f"{count} {word}" for word, count in system.verdicts.items()) or "claims nothing"
    return format_html('<span class="cells" role="img" aria-label="{}">{}</span>', words, found)


def exported_claims(system: System) -> Table:
    """The claims table as in a paper's appendix; figures of different units keep their unit in a column."""
    columns = (
        Column("claim"),
        Column("where"),
        Column("unit"),
        Column("paper", is_figure=True),
        Column("ours", is_figure=True),
        Column("low", is_figure=True),
        Column("high", is_figure=True),
        Column("ours / paper", is_figure=True),
        Column("mode"),
        Column("verdict"),
        Column("reason"),
    )
    rows = []
    for row in system.rows:
        claim, verdict = row.claim, row.verdict
        figures = (claim.unit, claim.value, row.ours, verdict.low, verdict.high, row.ratio)
        rows.append(
            (claim.text, claim.where, *figures, ", ".join(row.modes), verdict.verdict, verdict.reason)
        )
    return Table(f"Claims of {system.name}", columns, tuple(rows))
