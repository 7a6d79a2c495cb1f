"""A search said back: as text that reads the same, and as a sentence."""

from __future__ import annotations

import re

from experiments.core.metrics import known_or_plain
from experiments.core.units import human
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
    Query,
    Text,
    Value,
)

PLAIN = re.compile(r'[^\s()<>=!,:"]+')
KEYWORDS = ("and", "or", "not", "in", "between", "like", "missing", "group", "order", "by", "asc", "desc")
SAID = {"=": "is", "!=": "is not", "<": "under", "<=": "at most", ">": "over", ">=": "at least"}


def write(query: Query) -> str:
    """Text that ``parse`` reads as the same query."""
    parts = [_write(query.condition)] if query.condition else []
    if query.group:
        fields = ", ".join(map(str, query.group))
        parts.append(f"group by {fields}: {', '.join(map(str, query.aggregates))}")
    if query.order:
        parts.append(f"order by {query.order} {'desc' if query.descending else 'asc'}")
    return " ".join(parts)


def _write(condition: Condition) -> str:
    match condition:
        case Compare(field, operator, value):
            return f"{field} {operator} {_value(value)}"
        case OneOf(field, values):
            return f"{field} in ({', '.join(map(_value, values))})"
        case Between(field, low, high):
            return f"{field} between {_value(low)} and {_value(high)}"
        case Like(field, pattern):
            return f"{field} like {_value(pattern)}"
        case Missing(field):
            return f"{field} missing"
        case Text(text):
            return _quote(text)
        case Not(of):
            return f"not ({_write(of)})"
        case And(parts):
            return " and ".join(f"({_write(part)})" for part in parts)
        case Or(parts):
            return " or ".join(f"({_write(part)})" for part in parts)


def _value(value: Value) -> str:
    if isinstance(value, float):
        return repr(value)
    return value if PLAIN.fullmatch(value) and value.lower() not in KEYWORDS else _quote(value)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def say(query: Query) -> str:
    """``memory runs ...`` as a sentence for the page."""
    parts = ["runs" + (f" where {_say(query.condition)}" if query.condition else "")]
    if query.group:
        parts.append(f"by {' and '.join(map(str, query.group))}")
    if query.order:
        parts.append(f"{'the largest' if query.descending else 'the smallest'} {query.order} first")
    return ", ".join(parts)


def _say(condition: Condition) -> str:
    match condition:
        case Compare(field, operator, value):
            return f"{field.name} {SAID[operator]} {_show_value(field, value)}"
        case OneOf(field, values):
            return f"{field.name} is {' or '.join(_show_value(field, value) for value in values)}"
        case Between(field, low, high):
            return f"{field.name} from {_show_value(field, low)} to {_show_value(field, high)}"
        case Like(field, pattern):
            return f"{field.name} like {pattern}"
        case Missing(field):
            return f"without {field.name}"
        case Text(text):
            return f"something says {text!r}"
        case Not(of):
            return f"not ({_say(of)})"
        case And(parts):
            return " and ".join(_enclose(part) for part in parts)
        case Or(parts):
            return " or ".join(_enclose(part) for part in parts)


def _enclose(condition: Condition) -> str:
    return f"({_say(condition)})" if isinstance(condition, And | Or) else _say(condition)


def _show_value(field: Field, value: Value) -> str:
    if isinstance(value, float) and field.kind == "metric":
        return human(value, known_or_plain(field.name).unit)
    return f"{value:g}" if isinstance(value, float) else value
