"""The figures of a run as one object, without an object for each figure."""

from __future__ import annotations

from typing import Any

from django.db.models import Aggregate, JSONField


class FiguresField(JSONField):
    """Values by name; JSON has whole numbers where a float is one."""

    def from_db_value(self, value: Any, *about: Any) -> dict[str, float]:
        found = super().from_db_value(value, *about) or {}
        return {name: float(number) for name, number in found.items()}


class ByName(Aggregate):
    """The values of metrics under their names; nothing where there are none."""

    function = "jsonb_object_agg"
    output_field = FiguresField()
