"""The figures of a run as one object, without an object for each figure."""

from __future__ import annotations

from typing import Any

import orjson
from django.db.models import Aggregate, JSONField


class FiguresField(JSONField):
    """Values by name; JSON has whole numbers where a float is one."""

    def from_db_value(self, value: Any, *about: Any) -> dict[str, float]:
        found = orjson.loads(value) if value else {}
        return {name: float(number) for name, number in found.items()}


class ByName(Aggregate):
    """The values of metrics under their names; nothing where there are none. As text, whose keys nobody
    sorts.
    """

    function = "json_object_agg"
    template = "%(function)s(%(expressions)s)::text"
    output_field = FiguresField()
