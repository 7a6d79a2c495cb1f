"""Rows by many keys as one array: with a parameter for each of them a query takes longer to write than to
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import BooleanField, F, Func, Value


def among(column: str, keys: Sequence[Any]) -> Func:
    """Whether a row's ``column`` is one of the ``keys``."""
    return Func(
        F(column),
        Value(list(keys)),
        template="%(expressions)s)",
        arg_joiner=" = ANY(",
        output_field=BooleanField(),
    )
