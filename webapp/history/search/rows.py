"""The rows of a search: those that it finds in their order, page by page, or in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet, StdDev

from webapp.compare.statistics import FRACTIONS, half_width
from webapp.history.search.conditions import (
    alias_of,
    condition_of,
    has_field,
    join_figures,
    joined_condition,
    key_of,
    value_of,
)
from webapp.history.search.fields import COLUMNS
from webapp.history.search.quantiles import Median, Quantiles
from webapp.history.search.tree import Aggregate, Field, Query
from webapp.runs.models import Run, RunMetric

T = TypeVar("T")
#: ``values`` and ``box`` are asked for by pages, not by the text of a search.
AGGREGATES: dict[str, Callable[..., Any]] = {
    **{"min": Min, "max": Max, "mean": Avg},
    "std": partial(StdDev, sample=True),
    "interval": partial(StdDev, sample=True),  # made of it and the number of its values
    "median": Median,
    "values": Count,
    "box": partial(Quantiles, fractions=FRACTIONS),
}


def search(runs: QuerySet[Run], query: Query) -> QuerySet[Run]:
    """The runs that the search's condition holds for."""
    return runs.filter(condition_of(query.condition)) if query.condition else runs


def search_many(runs: QuerySet[Run], query: Query) -> QuerySet[Run]:
    """The same runs, with their figures joined: sooner where many are found, later where few are."""
    if query.condition is None:
        return runs
    condition, names = joined_condition(query.condition)
    values = {value_of(name): F(f"{alias_of(name)}__value") for name in names}
    return runs.alias(**join_figures(names)).alias(**values).filter(condition)


def first_runs(runs: QuerySet[Run], query: Query, most: int, last: Run | None = None) -> list[Run]:
    """The first ``most`` runs in the order that the search names, or the next ones behind ``last``: however
    far back, they cost the same.

    Those without what they are ordered by come last; the newest is first among equals, and where the search
    names no order.
    """
    return _first(_parts(runs, query.order, query.descending, last), most)


def first_keys(runs: QuerySet[Run], query: Query, most: int) -> list[UUID]:
    """The keys of ``first_runs``."""
    parts = _parts(runs, query.order, query.descending, None)
    return _first((part.values_list("pk", flat=True) for part in parts), most)


def _first(parts: Iterable[QuerySet[Run, T]], most: int) -> list[T]:
    found: list[T] = []
    for part in parts:
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
        without = newest.filter(~has_field(order))
        yield without.filter(_older(last)) if last and key is None else without
    else:
        yield _by_column(runs, order, descending, last)


def _older(last: Run) -> Q:
    return Q(queued_at__lt=last.queued_at) | Q(queued_at=last.queued_at, pk__lt=last.pk)


def _by_figure(runs: QuerySet[Run], order: Field, descending: bool) -> QuerySet[Run]:
    """Those that have the figure, joined so that its index gives their order."""
    figure = alias_of(order.name)
    found = runs.alias(**join_figures([order.name])).filter(**{f"{figure}__isnull": False})
    ordered = found.annotate(key=F(f"{figure}__value"))
    return ordered.order_by("-key" if descending else "key", "-queued_at", "-id")


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


def groups(runs: QuerySet[Run], query: Query, most: int, are_many: bool = False) -> list[dict[str, Any]]:
    """A row for each group of those of ``runs`` that the search finds, which may be known to be many: its
    fields by name, its aggregates as they are written, the largest first.

    A figure is joined by its name, so that a run stays one row and no other figure is read.
    """
    found = search_many(runs, query) if are_many else search(runs, query)
    columns = {str(field): F(_column(field)) for field in query.group}
    keys = {f"key_{place}": column for place, column in enumerate(columns.values())}
    figures = dict.fromkeys(one.field.name for one in query.aggregates if one.field)
    named = {f"value_{place}": _aggregate(one) for place, one in enumerate(query.aggregates)}
    named |= {
        f"n_{place}": Count(_value_of(one)) for place, one in enumerate(query.aggregates) if _is_interval(one)
    }
    told = found.order_by().alias(**join_figures(figures)).values(**keys)
    rows = told.annotate(size=Count("id"), **named)
    largest: list[dict[str, Any]] = [dict(row) for row in rows.order_by("-size", *keys)[:most]]
    return [
        {
            **{name: row[f"key_{place}"] for place, name in enumerate(columns)},
            **{str(one): _value_in(one, row, place) for place, one in enumerate(query.aggregates)},
        }
        for row in largest
    ]


def values_in_groups(
    runs: QuerySet[Run], query: Query, metric: str, most: int
) -> list[tuple[tuple[Any, ...], float, Run]]:
    """Those of ``runs`` that the search finds and that have the metric: what groups them, value and run."""
    figure = alias_of(metric)
    columns = dict.fromkeys(map(_column, query.group))
    keys = {f"key_{place}": F(column) for place, column in enumerate(columns)}
    found = (
        search(runs, query).order_by().alias(**join_figures([metric])).filter(**{f"{figure}__isnull": False})
    )
    told = found.annotate(**keys, told_value=F(f"{figure}__value")).only("policy", "hardware", "seed")
    return [(tuple(getattr(run, key) for key in keys), run.told_value, run) for run in told[:most]]


def _column(field: Field) -> str:
    return COLUMNS[field.name][0] if field.kind == "column" else key_of(field)


def _aggregate(one: Aggregate) -> Any:
    return AGGREGATES[one.function](_value_of(one)) if one.field else Count("id")


def _value_of(one: Aggregate) -> str:
    return f"{alias_of(one.field.name)}__value" if one.field else "id"


def _is_interval(one: Aggregate) -> bool:
    return one.function == "interval"


def _value_in(one: Aggregate, row: dict[str, Any], place: int) -> Any:
    """A group's value of an aggregate; a single run has neither deviation nor interval."""
    value = row[f"value_{place}"]
    return half_width(row[f"n_{place}"], value) if _is_interval(one) and value is not None else value
