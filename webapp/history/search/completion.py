"""What could come next in a search that is typed: names, then comparisons, then values that are there."""

from __future__ import annotations

import re

from experiments.core.metrics import METRICS
from webapp.accounts.models import Project
from webapp.history.models import RunTag
from webapp.history.search.fields import COLUMNS, Unknown, all_names, field_of, type_of
from webapp.history.search.parse import FUNCTIONS
from webapp.runs.models import Run

MOST = 12
TYPED = re.compile(r'[^\s()<>=!,:"]*$')
AFTER_OPERATOR = re.compile(r"([^\s()<>=!,:\"]+)\s*(?:=|!=|(?:not\s+)?in\s*\((?:[^()]*,)?)\s*$", re.I)
#: Behind the colon of groups, outside of parentheses: an aggregate.
IN_AGGREGATES = re.compile(r"\bgroup\s+by\b[^:]*:(?:[^()]|\([^()]*\))*$", re.I)
AGGREGATES = ("count", *(f"{name}(" for name in FUNCTIONS[1:]))
AFTER_NAME = re.compile(r"(?:^|[\s(])([^\s()<>=!,:\"]+)\s+$")


def complete(project: Project, text: str) -> list[str]:
    """At most ``MOST`` words that may stand where ``text`` ends."""
    found = TYPED.search(text)
    typed = found[0] if found else ""
    before = text[: len(text) - len(typed)]
    if IN_AGGREGATES.search(before):
        return [word for word in AGGREGATES if word.startswith(typed.lower())]
    asked = AFTER_OPERATOR.search(before)
    if asked:
        values = _values(project, asked[1])
        return [value for value in values if value.lower().startswith(typed.lower())][:MOST]
    named = AFTER_NAME.search(before)
    if named and not typed and _is_field(named[1]):
        return _comparisons(named[1])
    names = (*all_names(), *_own_names(project))
    starts = [name for name in names if name.startswith(typed.lower())]
    inside = [name for name in names if typed.lower() in name and name not in starts]
    return [*starts, *inside][:MOST] if typed else list(COLUMNS)


def _own_names(project: Project) -> list[str]:
    """Figures and parameters that the newest of people's own programs have."""
    newest = Run.objects.filter(project=project, kind=Run.Kind.LOGGED).order_by("-queued_at", "-id")[:50]
    logged = list(newest.with_figures())
    figures = {name for run in logged for name in run.figures}.difference(METRICS)
    params = {name for run in logged for name in run.spec.get("knobs", {})}
    told = [*(f"metric.{name}" for name in sorted(figures)), *(f"param.{name}" for name in sorted(params))]
    return [name for name in told if _is_field(name)]


def _is_field(text: str) -> bool:
    try:
        field_of(text)
    except Unknown:
        return False
    return True


def _comparisons(name: str) -> list[str]:
    if type_of(field_of(name)) == "text":
        return ["=", "!=", "in (", "like", "missing"]
    return ["<", "<=", ">", ">=", "=", "between", "missing"]


def _values(project: Project, name: str) -> list[str]:
    if not _is_field(name):
        return []
    field = field_of(name)
    if field.kind == "tag":
        tags = RunTag.objects.filter(run__project=project).order_by("name")
        return list(tags.values_list("name", flat=True).distinct()[:200])
    if field.kind != "column" or type_of(field) != "text":
        return []
    column = COLUMNS[field.name][0]
    newest = Run.objects.filter(project=project, kind__in=Run.RECORDED).order_by("-queued_at", "-id")[:5000]
    found = dict.fromkeys(newest.values_list(column, flat=True))
    return [_quote(value) for value in found if value]


def _quote(value: str) -> str:
    return f'"{value}"' if re.search(r'[\s()<>=!,:"]', value) else value
