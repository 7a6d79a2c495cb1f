"""A search as a query of the database: parametrised by the ORM, nothing of the text is ever SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import (
    Avg,
    BooleanField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    FilteredRelation,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    StdDev,
    Value,
)
from django.db.models.functions import Coalesce

from webapp.history.models import RunTag
from webapp.history.search.fields import COLUMNS, type_of
from webapp.history.search.tree import (
    Aggregate,
    And,
    Between,
    Compare,
    Condition,
    Field,
    Like,
    Missing,
    Not,
    OneOf,
    Or,
    Query,
    Text,
)
from webapp.history.search.tree import Value as Told
from webapp.runs.models import Run, RunMetric

LOOKUPS = {"=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
#: Where free text is looked for.
SEARCHED = ("policy", "hardware", "artifact__name", "experiment__name")
AGGREGATES: dict[str, Callable[..., Any]] = {
    **{"min": Min, "max": Max, "mean": Avg},
    "std": partial(StdDev, sample=True),
}
#: The order that Postgres gives JSON values of other types: text, numbers, booleans.
LEAST_NUMBER = -1.7e308


def search(runs: QuerySet[Run], query: Query) -> QuerySet[Run]:
    """The runs that the search's condition holds for."""
    return runs.filter(_q(query.condition)) if query.condition else runs


def first_runs(runs: QuerySet[Run], query: Query, most: int, last: Run | None = None) -> list[Run]:
    """The first ``most`` runs in the order that the search names, or the next ones behind ``last``: however
    far back, they cost the same.

    Those without what they are ordered by come last; the newest is first among equals, and where the search
    names no order.
    """
    found: list[Run] = []
    for part in _parts(runs, query.order, query.descending, last):
        found += part[: most - len(found)]
        if len(found) == most:
            break
    return found


def _parts(
    runs: QuerySet[Run], order: Field | None, descending: bool, last: Run | None
) -> Iterator[QuerySet[Run]]:
    """The runs behind ``last``, cut so that each part is ordered by an index where there is one."""
    newest = runs.order_by("-queued_at", "-id")
    if order is None:
        yield newest.filter(_older(last)) if last else newest
    elif order.kind == "metric":
        key = _figure_of(last, order) if last else None
        if last is None or key is not None:
            yield _behind(_by_figure(runs, order, descending), descending, last, key)
        without = newest.filter(~_has(order))
        yield without.filter(_older(last)) if last and key is None else without
    else:
        yield _by_column(runs, order, descending, last)


def _older(last: Run) -> Q:
    return Q(queued_at__lt=last.queued_at) | Q(queued_at=last.queued_at, pk__lt=last.pk)


def _by_figure(runs: QuerySet[Run], order: Field, descending: bool) -> QuerySet[Run]:
    """Those that have the figure, joined so that its index gives their order."""
    joined = FilteredRelation("metrics", condition=Q(metrics__name=order.name))
    keyed = runs.annotate(ordered=joined).filter(ordered__isnull=False).annotate(key=F("ordered__value"))
    return keyed.order_by("-key" if descending else "key", "-queued_at", "-id")


def _behind(keyed: QuerySet[Run], descending: bool, last: Run | None, key: Any) -> QuerySet[Run]:
    """Of runs that all have a ``key``; the bound that is implied is what an index is entered by."""
    if last is None:
        return keyed
    side = "lt" if descending else "gt"
    return keyed.filter(Q(**{f"key__{side}e": key}), Q(**{f"key__{side}": key}) | _older(last))


def _figure_of(run: Run, figure: Field) -> float | None:
    return RunMetric.objects.filter(run=run, name=figure.name).values_list("value", flat=True).first()


def _by_column(runs: QuerySet[Run], order: Field, descending: bool, last: Run | None) -> QuerySet[Run]:
    column = COLUMNS[order.name][0]
    key = F(column)
    first = key.desc(nulls_last=True) if descending else key.asc(nulls_last=True)
    ordered = runs.order_by(first, "-queued_at", "-id")
    if last is None:
        return ordered
    value = Run.objects.filter(pk=last.pk).values_list(column, flat=True).get()
    missing = Q(**{f"{column}__isnull": True})
    if value is None:
        return ordered.filter(_older(last) & missing)
    further = Q(**{f"{column}__{'lt' if descending else 'gt'}": value})
    return ordered.filter(further | Q(**{column: value}) & _older(last) | missing)


def groups(runs: QuerySet[Run], query: Query, most: int) -> list[dict[str, Any]]:
    """A row for each group: its fields by name, its aggregates as they are write, the largest first.

    A figure is joined by its name, so that a run stays one row and no other figure is read.
    """
    columns = {str(field): F(_column(field)) for field in query.group}
    keys = {f"key_{place}": column for place, column in enumerate(columns.values())}
    figures = dict.fromkeys(one.field.name for one in query.aggregates if one.field)
    joined = {name: f"figure_{place}" for place, name in enumerate(figures)}
    relations = {
        alias: FilteredRelation("metrics", condition=Q(metrics__name=name)) for name, alias in joined.items()
    }
    named = {f"value_{place}": _aggregate(one, joined) for place, one in enumerate(query.aggregates)}
    told = runs.order_by().annotate(**relations).values(**keys)
    rows = told.annotate(size=Count("id"), **named)
    found: list[dict[str, Any]] = [dict(row) for row in rows.order_by("-size", *keys)[:most]]
    return [
        {
            **{name: row[f"key_{place}"] for place, name in enumerate(columns)},
            **{str(one): row[f"value_{place}"] for place, one in enumerate(query.aggregates)},
        }
        for row in found
    ]


def _column(field: Field) -> str:
    return COLUMNS[field.name][0] if field.kind == "column" else _path(field)


def _aggregate(one: Aggregate, joined: Mapping[str, str]) -> Any:
    if one.field is None:
        return Count("id")
    return AGGREGATES[one.function](f"{joined[one.field.name]}__value")


def _q(condition: Condition) -> Q:
    match condition:
        case Compare(field, "!=", value):
            return _has(field) & ~_holds(field, [("exact", value)])
        case Compare(field, operator, value):
            return _holds(field, [(LOOKUPS[operator], value)])
        case OneOf(field, values):
            return _any([_holds(field, [("exact", value)]) for value in values])
        case Between(field, low, high):
            return _holds(field, [("gte", low), ("lte", high)])
        case Like(field, pattern):
            return _holds(field, [("iregex", _regex(pattern))])
        case Missing(field):
            return ~_has(field)
        case Text(text):
            return _any([_or_false(Q(**{f"{column}__icontains": text})) for column in SEARCHED])
        case Not(of):
            return ~_q(of)
        case And(parts):
            found = Q()
            for part in parts:
                found &= _q(part)
            return found
        case Or(parts):
            return _any([_q(part) for part in parts])


def _any(parts: Sequence[Q]) -> Q:
    found = parts[0]
    for part in parts[1:]:
        found |= part
    return found


def _regex(pattern: str) -> str:
    return f"^{'.*'.join(map(re.escape, pattern.split('*')))}$"


def _has(field: Field) -> Q:
    if field.kind == "metric":
        return Q(Exists(RunMetric.objects.filter(run=OuterRef("pk"), name=field.name)))
    if field.kind == "tag":
        return Q(Exists(RunTag.objects.filter(run=OuterRef("pk"))))
    if field.kind == "column":
        column = COLUMNS[field.name][0]
        return Q(**{f"{column}__isnull": False}) & (~Q(**{column: ""}) if type_of(field) == "text" else Q())
    path = _path(field)
    return Q(**{f"{path}__isnull": False}) & ~_or_false(Q(**{path: None}))


def _path(field: Field) -> str:
    """A key of the spec. Names of knobs and options were looked up, and those of parameters are letters,
    digits, dots and the like.
    """
    return (
        f"spec__knobs__{field.name}"
        if field.kind in ("knob", "param")
        else f"spec__workload__options__{field.name}"
    )


def _holds(field: Field, tests: Sequence[tuple[str, Told]]) -> Q:
    if field.kind == "metric":
        asked = {f"value__{lookup}": value for lookup, value in tests}
        return Q(Exists(RunMetric.objects.filter(run=OuterRef("pk"), name=field.name, **asked)))
    if field.kind == "tag":
        asked = {f"name__{lookup}": value for lookup, value in tests}
        return Q(Exists(RunTag.objects.filter(run=OuterRef("pk"), **asked)))
    if field.kind == "column":
        column = COLUMNS[field.name][0]
        typed = {f"{column}__{lookup}": _typed(field, value) for lookup, value in tests}
        return _or_false(Q(**typed))
    return _or_false(_json_holds(_path(field), tests))


def _or_false(condition: Q) -> Q:
    """Nothing there is no match, and its negation one: SQL's third truth value would be neither."""
    whole = ExpressionWrapper(condition, output_field=BooleanField())
    return Q(Coalesce(whole, Value(False), output_field=BooleanField()))


def _typed(field: Field, value: Told) -> Any:
    return datetime.fromisoformat(str(value)) if type_of(field) == "moment" else value


def _json_holds(path: str, tests: Sequence[tuple[str, Told]]) -> Q:
    """Numbers are compared with numbers alone: JSON's order puts text before and booleans behind them."""
    found = Q()
    for lookup, value in tests:
        if isinstance(value, float):
            number = int(value) if value == int(value) and abs(value) < 2**53 else value
            found &= Q(**{f"{path}__{lookup}": number})
            if lookup != "exact":
                found &= Q(**{f"{path}__gte": LEAST_NUMBER}) & Q(**{f"{path}__lt": False})
        else:
            truth = {"true": True, "false": False}.get(value.lower(), value)
            found &= Q(**{f"{path}__{lookup}": truth})
    return found
