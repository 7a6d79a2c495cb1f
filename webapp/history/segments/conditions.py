"""Conditions of a search on columns: the runs that ``search/conditions.py`` finds with the database."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import numpy as np

from webapp.history.models import LONGEST_PARAM
from webapp.history.search.fields import type_of
from webapp.history.search.tree import And, Between, Compare, Condition, Field, Missing, Not, OneOf, Or, Value
from webapp.history.segments.columns import EXACT, Block, Floats, Key, Mask, is_number

#: Columns of a run's own: what it is part of may be renamed, and is looked up by the database.
OWN = ("policy", "family", "mode", "state", "hardware", "seed", "time")
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TRUTHS = {"true": True, "false": False}
#: Comparisons that all hold.
Tests = Sequence[tuple[str, Any]]


class Unanswerable(Exception):
    """A condition that columns know nothing of."""


def key_of(field: Field) -> Key:
    """The column of a field: a knob and a parameter of that name are one. Raises ``Unanswerable``."""
    if field.kind == "metric" or (field.kind == "column" and field.name in OWN):
        return field.kind, field.name
    if field.kind in ("knob", "param", "option") and len(field.name) <= LONGEST_PARAM:
        return "option" if field.kind == "option" else "knob", field.name
    raise Unanswerable(str(field))


def keys_of(condition: Condition) -> set[Key]:
    """The columns that a condition reads; raises ``Unanswerable``."""
    match condition:
        case And(parts) | Or(parts):
            return {key for part in parts for key in keys_of(part)}
        case Not(of):
            return keys_of(of)
        case Compare(field, comparison, value):
            return {_comparable(field, comparison, value)}
        case Between(field, low, high):
            return {_comparable(field, ">=", low), _comparable(field, "<=", high)}
        case OneOf(field) | Missing(field):
            return {key_of(field)}
    raise Unanswerable(str(condition))


def _comparable(field: Field, comparison: str, value: Value) -> Key:
    """Text in JSON has an order of the database's own."""
    if comparison not in ("=", "!=") and isinstance(value, str) and type_of(field) == "any":
        raise Unanswerable(str(field))
    return key_of(field)


def found_in(block: Block, condition: Condition) -> Mask:
    """Which of the block's runs the condition holds for."""
    match condition:
        case And(parts):
            return reduce(operator.and_, (found_in(block, part) for part in parts))
        case Or(parts):
            return reduce(operator.or_, (found_in(block, part) for part in parts))
        case Not(of):
            return ~found_in(block, of)
        case Compare(field, "!=", value):
            return _has(block, field) & ~_where(block, field, [("=", value)])
        case Compare(field, comparison, value):
            return _where(block, field, [(comparison, value)])
        case Between(field, low, high):
            return _where(block, field, [(">=", low), ("<=", high)])
        case OneOf(field, values):
            return reduce(operator.or_, (_where(block, field, [("=", value)]) for value in values))
        case Missing(field):
            return ~_has(block, field)
    raise Unanswerable(str(condition))


def _has(block: Block, field: Field) -> Mask:
    """Text has a value where it is not empty, JSON where it is not null."""
    column = block.columns.get(key_of(field))
    if column is None:
        return np.zeros(block.size, bool)
    nothing = "" if field.kind == "column" else None
    return column.where(block.size, lambda word: word != nothing, lambda values: np.ones(len(values), bool))


def _where(block: Block, field: Field, tests: Tests) -> Mask:
    column = block.columns.get(key_of(field))
    if column is None:
        return np.zeros(block.size, bool)
    typed = [(comparison, _in_its_type(field, value)) for comparison, value in tests]
    return column.where(block.size, partial(_holds, typed), partial(_hold, typed))


def _in_its_type(field: Field, value: Value) -> Any:
    kind = type_of(field)
    if kind == "moment":
        return microseconds(datetime.fromisoformat(str(value)))
    if isinstance(value, float):
        return int(value) if field.kind == "column" and value.is_integer() else _as_written(value)
    return TRUTHS.get(value.lower(), value) if kind == "any" else value


def _as_written(number: Any) -> Any:
    """JSON's numbers are decimal, and large ones are not those that floating point makes of them."""
    return Decimal(repr(number)) if isinstance(number, float) and abs(number) > EXACT else number


def microseconds(moment: datetime) -> int:
    """Since 1970, which 8 bytes of a number hold without loss for another two centuries."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _holds(tests: Tests, word: Any) -> bool:
    """Numbers are compared with numbers alone, as true is with true."""
    told = _as_written(word)
    return all(_are_alike(word, value) and COMPARED[comparison](told, value) for comparison, value in tests)


def _are_alike(one: Any, other: Any) -> bool:
    return is_number(one) == is_number(other) and isinstance(one, bool) == isinstance(other, bool)


def _hold(tests: Tests, values: Floats) -> Mask:
    """To Postgres a value that is no number is the largest."""
    found = np.ones(len(values), bool)
    for comparison, value in tests:
        held = COMPARED[comparison](values, float(value)) if is_number(value) else found & False
        found &= held | np.isnan(values) if comparison in (">", ">=") and is_number(value) else held
    return found
