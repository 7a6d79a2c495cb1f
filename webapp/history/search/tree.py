"""What a search says, as values: conditions on fields, how rows are grouped and ordered."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.metrics import METRICS

Value = str | float

#: Comparisons as they are written.
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Field:
    """``kind`` is ``column``, ``metric``, ``knob``, ``param`` (of somebody's own program), ``option``,
    ``tag`` or ``text``; ``at`` its column in the text, from 1.
    """

    kind: str
    name: str
    at: int = 0

    def __str__(self) -> str:
        return f"{self.kind}.{self.name}" if self.is_prefixed else self.name

    @property
    def is_prefixed(self) -> bool:
        """Whether its kind has to be said: figures that the lab knows, and columns, go by their name."""
        return self.kind in ("knob", "option", "param") or (
            self.kind == "metric" and self.name not in METRICS
        )


@dataclass(frozen=True)
class Compare:
    field: Field
    operator: str
    value: Value


@dataclass(frozen=True)
class OneOf:
    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Between:
    """Both ends belong to it."""

    field: Field
    low: Value
    high: Value


@dataclass(frozen=True)
class Like:
    """``*`` stands for anything."""

    field: Field
    pattern: str


@dataclass(frozen=True)
class Missing:
    field: Field


@dataclass(frozen=True)
class Text:
    """Somewhere in policy, workload, hardware or experiment."""

    text: str


@dataclass(frozen=True)
class Not:
    of: Condition


@dataclass(frozen=True)
class And:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Condition, ...]


Condition = Compare | OneOf | Between | Like | Missing | Text | Not | And | Or


@dataclass(frozen=True)
class Aggregate:
    """``function`` is one of ``count min max mean median std interval``, the last half the mean's 95 %
    interval; ``field`` is what it is of (not of a count).
    """

    function: str
    field: Field | None = None

    def __str__(self) -> str:
        return self.function if self.field is None else f"{self.function}({self.field})"


@dataclass(frozen=True)
class Query:
    condition: Condition | None = None
    group: tuple[Field, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    order: Field | None = None
    descending: bool = False
