"""Quantiles of a group's figures, found by the database."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.postgres.fields import ArrayField
from django.db.models import Aggregate, FloatField


class Quantiles(Aggregate):
    """Values at ``fractions`` of a group's, between two of them as far as the fraction says."""

    function = "PERCENTILE_CONT"
    template = "%(function)s(ARRAY[%(fractions)s]) WITHIN GROUP (ORDER BY %(expressions)s)"

    def __init__(self, expression: str, fractions: Sequence[float]) -> None:
        told = ", ".join(repr(float(fraction)) for fraction in fractions)
        super().__init__(expression, fractions=told, output_field=ArrayField(FloatField()))


class Median(Aggregate):
    function = "PERCENTILE_CONT"
    template = "%(function)s(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()
