"""Conditions of a search as those of a query: parametrized by the ORM, nothing of the text is ever SQL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, FilteredRelation, OuterRef, Q, Value
from django.db.models.functions import Coalesce

from webapp.history.models import RunTag
from webapp.history.search.fields import COLUMNS, type_of
from webapp.history.search.tree import (
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
    Text,
)
from webapp.history.search.tree import Value as Told
from webapp.runs.models import Run, RunMetric

#: A lookup and its value; several that all hold; figures with theirs, of which one is to hold.
Test = tuple[str, Told]
Tests = Sequence[Test]
FigureTests = Sequence[tuple[Field, Tests]]
LOOKUPS = {"=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
#: Where free text is looked for.
SEARCHED = ("policy", "hardware", "artifact__name", "experiment__name")
#: The order that Postgres gives JSON values of other types: text, numbers, booleans.
LEAST_NUMBER = -1.7e308


def condition_of(condition: Condition) -> Q:
    """What a run is to be, each of its figures looked up for itself."""
    return _q(condition, _has_figure)


def joined_condition(condition: Condition) -> tuple[Q, list[str]]:
    """The same of figures that are joined (``join_figures``) with their values by ``value_of``; and which."""
    names: dict[str, None] = {}

    def is_joined(tests: FigureTests) -> Q:
        names.update(dict.fromkeys(figure.name for figure, _ in tests))
        return _any([_compare_joined(figure, one) for figure, one in tests])

    return _q(condition, is_joined), list(names)


def _q(condition: Condition, figures: Callable[[FigureTests], Q]) -> Q:
    """``figures`` makes a condition of tests of figures of which one is to hold."""
    if tests := _figure_tests(condition):
        return figures(tests)
    match condition:
        case Compare(field, "!=", value):
            return has_field(field) & ~_q(Compare(field, "=", value), figures)
        case Compare(field, operator, value):
            return _holds(field, [(LOOKUPS[operator], value)])
        case OneOf(field, values):
            return _any([_holds(field, [("exact", value)]) for value in values])
        case Between(field, low, high):
            return _holds(field, [("gte", low), ("lte", high)])
        case Like(field, pattern):
            return _holds(field, [("iregex", _regex(pattern))])
        case Missing(field):
            return ~has_field(field)
        case Text(text):
            return _any([_column_holds(column, {"icontains": text}) for column in SEARCHED])
        case Not(of):
            return ~_q(of, figures)
        case And(parts):
            return _all_of(parts, figures)
        case Or(parts):
            return _one_of(parts, figures)


def _one_of(parts: Sequence[Condition], figures: Callable[[FigureTests], Q]) -> Q:
    """Parts of which one holds; those that are about figures together."""
    tests = tuple(test for part in parts for test in _figure_tests(part))
    others = [_q(part, figures) for part in parts if not _figure_tests(part)]
    return _any([*([figures(tests)] if tests else []), *others])


def _all_of(parts: Sequence[Condition], figures: Callable[[FigureTests], Q]) -> Q:
    found = Q()
    for part in parts:
        found &= _q(part, figures)
    return found


def _figure_tests(condition: Condition) -> FigureTests:
    """The tests of figures of which one is to hold, where the condition is nothing else."""
    match condition:
        case Compare(Field("metric") as field, operator, value) if operator in LOOKUPS:
            return ((field, ((LOOKUPS[operator], value),)),)
        case Between(Field("metric") as field, low, high):
            return ((field, (("gte", low), ("lte", high))),)
        case OneOf(Field("metric") as field, values):
            return tuple((field, (("exact", value),)) for value in values)
        case Or(parts):
            found = [_figure_tests(part) for part in parts]
            return tuple(test for tests in found for test in tests) if all(found) else ()
    return ()


def _has_figure(tests: FigureTests) -> Q:
    """One look for all of them, which an index answers for a few runs as for many."""
    named = [
        Q(name=figure.name, **{f"value__{lookup}": value for lookup, value in one}) for figure, one in tests
    ]
    return Q(Exists(RunMetric.objects.filter(_any(named), run=OuterRef("pk"))))


def _compare_joined(figure: Field, tests: Tests) -> Q:
    return _or_false(Q(**{f"{value_of(figure.name)}__{lookup}": value for lookup, value in tests}))


def _any(parts: Sequence[Q]) -> Q:
    found = parts[0]
    for part in parts[1:]:
        found |= part
    return found


def _regex(pattern: str) -> str:
    return f"^{'.*'.join(map(re.escape, pattern.split('*')))}$"


def has_field(field: Field) -> Q:
    if field.kind == "metric":
        return Q(Exists(RunMetric.objects.filter(run=OuterRef("pk"), name=field.name)))
    if field.kind == "tag":
        return Q(Exists(RunTag.objects.filter(run=OuterRef("pk"))))
    if field.kind == "column":
        column = COLUMNS[field.name][0]
        return Q(**{f"{column}__isnull": False}) & (~Q(**{column: ""}) if type_of(field) == "text" else Q())
    path = key_of(field)
    return Q(**{f"{path}__isnull": False}) & ~_or_false(Q(**{path: None}))


def key_of(field: Field) -> str:
    """A key of the spec. Names of knobs and options were looked up, and those of parameters are letters,
    digits, dots and the like.
    """
    return (
        f"spec__knobs__{field.name}"
        if field.kind in ("knob", "param")
        else f"spec__workload__options__{field.name}"
    )


def _holds(field: Field, tests: Sequence[Test]) -> Q:
    if field.kind == "tag":
        asked = {f"name__{lookup}": value for lookup, value in tests}
        return Q(Exists(RunTag.objects.filter(run=OuterRef("pk"), **asked)))
    if field.kind == "column":
        if any(lookup == "exact" and isinstance(value, float) and value % 1 for lookup, value in tests):
            return Q(pk__in=())  # a column of whole numbers would be asked for this one's whole part
        typed = {lookup: _in_its_type(field, value) for lookup, value in tests}
        return _column_holds(COLUMNS[field.name][0], typed)
    return _or_false(_json_holds(key_of(field), tests))


def _column_holds(column: str, tests: Mapping[str, Any]) -> Q:
    """A column of a run's own is always there. Of what a run is part of, those that are so are looked up, and
    an index has their runs.
    """
    relation, _, name = column.rpartition("__")
    if not relation:
        return Q(**{f"{column}__{lookup}": value for lookup, value in tests.items()})
    field: Any = Run._meta.get_field(relation)
    so = field.related_model.objects.filter(**{f"{name}__{lookup}": value for lookup, value in tests.items()})
    return Q(Exists(so.filter(pk=OuterRef(getattr(field, "attname", "pk")))))  # a note has its run's key


def _or_false(condition: Q) -> Q:
    """Nothing there is no match, and its negation one: SQL's third truth value would be neither."""
    whole = ExpressionWrapper(condition, output_field=BooleanField())
    return Q(Coalesce(whole, Value(False), output_field=BooleanField()))


def _in_its_type(field: Field, value: Told) -> Any:
    return datetime.fromisoformat(str(value)) if type_of(field) == "moment" else value


def _json_holds(path: str, tests: Sequence[Test]) -> Q:
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


def join_figures(names: Iterable[str]) -> dict[str, FilteredRelation]:
    """Each figure of a run by its name, joined once wherever it is asked for."""
    return {alias_of(name): FilteredRelation("metrics", condition=Q(metrics__name=name)) for name in names}


def alias_of(name: str) -> str:
    """The figure's row in a query, for a database that knows few characters and cuts long names."""
    return f"figure_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def value_of(name: str) -> str:
    return f"{alias_of(name)}_value"
