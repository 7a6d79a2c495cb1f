"""Tables of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from webapp.artifacts.profile.ranks import Process
from webapp.artifacts.profile.words import percent_of, short
from webapp.compare.listing import FigureColumn, Listing

#: The bar is for the eye; the number next to it is for everybody.
SHARE = '<span class="share"><span class="track"><span style="width: {}%"></span></span>{}</span>'


class ShareColumn(FigureColumn):
    """A part of the whole, as a bar and in per cent."""

    def render(self, value: float) -> Any:
        return format_html(SHARE, f"{100 * value:.2f}", percent_of(value, 1.0))


class NameColumn(tables.Column):  # type: ignore[misc]
    """A kernel's or operator's name, short; all of it on hover and in a file."""

    def render(self, value: str) -> Any:
        return format_html('<span class="mono" title="{}">{}</span>', value, short(value))

    def value(self, value: str) -> str:
        return value


class KernelTable(Listing):
    name = NameColumn(verbose_name="Kernel")
    kind = tables.Column(verbose_name="Kind")
    share = ShareColumn(verbose_name="Share", unit="fraction")
    seconds = FigureColumn(verbose_name="Time", unit="s")
    count = FigureColumn(verbose_name="Calls")
    mean = FigureColumn(verbose_name="Mean", unit="s")
    most = FigureColumn(verbose_name="Longest", unit="s")

    class Meta:
        prefix = "kernels-"
        order_by = "-seconds"


class OperatorTable(Listing):
    name = NameColumn(verbose_name="Operator")
    share = ShareColumn(verbose_name="Share", unit="fraction")
    seconds = FigureColumn(verbose_name="On the device", unit="s")
    host = FigureColumn(verbose_name="On the host, itself", unit="s")
    count = FigureColumn(verbose_name="Calls")

    class Meta:
        prefix = "operators-"
        order_by = "-share"


class ModuleColumn(NameColumn):
    """A module by the last two names of its path."""

    def render(self, value: str) -> Any:
        *above, outer, inner = ["", *value.split(".")]
        shown = f"{outer}.{inner}" if outer else inner
        return format_html(
            '<span class="mono" title="{}">{}{}</span>', value, "…" if above[1:] else "", shown
        )


class ModuleTable(OperatorTable):
    name = ModuleColumn(verbose_name="Module")

    class Meta:
        prefix = "modules-"
        order_by = "-share"


class RankTable(Listing):
    title = "Ranks"
    rank = FigureColumn(verbose_name="Rank")
    file = tables.Column(verbose_name="File")
    span = FigureColumn(verbose_name="Span", unit="s")
    compute = FigureColumn(verbose_name="Compute", unit="s")
    communication = FigureColumn(verbose_name="Exposed communication", unit="s")
    communication_total = FigureColumn(verbose_name="In collectives", unit="s")
    copies = FigureColumn(verbose_name="Copies", unit="s")
    idle = FigureColumn(verbose_name="Idle", unit="s")

    class Meta:
        prefix = "ranks-"
        order_by = "communication_total"


class ChangeTable(Listing):
    name = NameColumn(verbose_name="Name")
    change = FigureColumn(verbose_name="Change", unit="s")
    here = FigureColumn(verbose_name="Here", unit="s")
    there = FigureColumn(verbose_name="There", unit="s")
    calls_here = FigureColumn(verbose_name="Calls here")
    calls_there = FigureColumn(verbose_name="Calls there")

    def render_change(self, value: float, record: Mapping[str, Any]) -> Any:
        """With its sign and a mark: less time is better."""
        shown = FigureColumn(unit="s").render(abs(value))
        state = "better" if value < 0 else "worse"
        sign = "−" if value < 0 else "+"
        return format_html('<span class="change {}">{}{}</span>', state, sign, shown) if value else shown


def add_shares(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a ranking with their shares and means; shares of the device's time, else of the host's."""
    key = "seconds" if any(row["seconds"] for row in rows) else "host"
    total = sum(row[key] for row in rows) or 1.0
    return [{**row, "share": row[key] / total, "mean": row["seconds"] / row["count"]} for row in rows]


def rank_rows(processes: Sequence[Process]) -> list[dict[str, Any]]:
    return [
        {"rank": process.rank, "file": process.name, **row}
        for process in processes
        for row in process.told["devices"]
    ]
