"""Tags of tables whose state is in the address: sorting, what a form keeps, what a link keeps."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable
from typing import Any

from django import template
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from experiments.core.units import significant

register = template.Library()

#: Never carried over: another choice starts at the first page, and a link is no download.
PASSING = ("page", "export", "table")
#: What the export menu calls the formats of ``webapp.compare.export``.
FORMAT_LABELS = {
    "csv": "CSV, every digit",
    "parquet": "Parquet",
    "markdown": "Markdown",
    "latex": "LaTeX (booktabs)",
}


@register.simple_tag(takes_context=True)
def sort_by(context: template.Context, key: str) -> str:
    """The address that sorts by ``key``; in the other direction where it already does."""
    values = context["request"].GET.copy()
    values["sort"] = f"-{key}" if _order(context) == key else key
    values.pop("page", None)
    return f"?{values.urlencode()}"


def _order(context: template.Context) -> str:
    """As the address says, else as a comparison orders its lines by itself."""
    comparison = context.get("comparison")
    return context["request"].GET.get("sort") or (comparison.order if comparison else "")


@register.simple_tag(takes_context=True)
def sort_state(context: template.Context, key: str) -> SafeString:
    """``aria-sort`` of a heading."""
    sort = _order(context)
    if sort.removeprefix("-") != key:
        return mark_safe("")
    return format_html(' aria-sort="{}"', "descending" if sort.startswith("-") else "ascending")


@register.simple_tag(takes_context=True)
def keep(context: template.Context, *dropped: str) -> SafeString:
    """Hidden fields with everything of the address but ``dropped``, which the form itself sets."""
    lists = context["request"].GET.lists()
    pairs = ((name, value) for name, values in lists for value in values if name not in (*dropped, *PASSING))
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', pairs)


@register.simple_tag(takes_context=True)
def keep_but(context: template.Context, prefix: str, name: str) -> SafeString:
    """What a form of the table ``prefix`` keeps: everything but ``name``, which it sets, and the table's
    page.
    """
    return keep(context, f"{prefix}{name}", f"{prefix}page")


@register.simple_tag(takes_context=True)
def keep_form(context: template.Context, fields: Iterable[Any], prefix: str) -> SafeString:
    """What a filter with these bound fields keeps of the address."""
    return keep(context, *(bound.html_name for bound in fields), f"{prefix}page")


@register.inclusion_tag("parts/listing.html", takes_context=True)
def listing(context: template.Context, table: Any) -> dict[str, Any]:
    """A ``Listing`` with its tools."""
    return {"table": table, "request": context["request"]}


@register.inclusion_tag("compare/export_menu.html", takes_context=True)
def export_menu(context: template.Context, table: str = "", command: str = "") -> dict[str, Any]:
    """The table ``table`` (a prefix) as a file, and the commands that give the same."""
    address = functools.partial(_export_address, context["request"], table)
    url = context["request"].build_absolute_uri(address("csv"))
    curl = f'curl -H "Authorization: Bearer $LAB_TOKEN" {shlex.quote(url)}'
    files = [(label, address(name)) for name, label in FORMAT_LABELS.items()]
    return {"id": table, "files": files, "curl": curl, "command": command}


def _export_address(request: HttpRequest, table: str, format: str) -> str:
    values = request.GET.copy()
    values["export"] = format
    if table:
        values["table"] = table
    return f"{request.path}?{values.urlencode()}"


@register.simple_tag(takes_context=True)
def only(context: template.Context, *names: str) -> str:
    """The current address with nothing but ``names``."""
    request = context["request"]
    values = request.GET.copy()
    for name in list(values):
        if name not in names:
            del values[name]
    return f"{request.path}?{values.urlencode()}" if values else request.path


@register.filter
def change(fraction: float) -> str:
    """``0.123`` -> ``+12.3 %``."""
    return f"{'+' if fraction > 0 else ''}{significant(fraction * 100)} %"
