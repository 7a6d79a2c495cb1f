"""Boxes of the groups of a search, their quantiles found by the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import QuerySet

from webapp.accounts.models import Project
from webapp.compare.figures.boxes import MOST_POINTS, Box, Boxes, Point, draw_boxes, point_of
from webapp.history.search import Query
from webapp.history.search.rows import values_in_groups
from webapp.history.search.tree import Aggregate, Field
from webapp.presentation import pretty
from webapp.runs.models import LONGEST_METRIC, Run


def with_box(query: Query, metric: str) -> Query:
    """The search with what the boxes of the metric need of each group; as it is without groups or metric."""
    if not query.group or not 0 < len(metric) <= LONGEST_METRIC:
        return query
    field = Field("metric", metric)
    return replace(query, aggregates=(*query.aggregates, Aggregate("values", field), Aggregate("box", field)))


def boxes_of(
    project: Project, runs: QuerySet[Run], query: Query, rows: Sequence[Mapping[str, Any]], count: int
) -> Boxes | None:
    """The boxes that ``with_box`` asked for in ``rows``, groups of ``count`` runs; few are points too."""
    box = next((one for one in query.aggregates if one.function == "box"), None)
    if box is None or box.field is None or not rows:
        return None
    metric = box.field.name
    names = list(dict.fromkeys(map(str, query.group)))
    points = _points(project, runs, query, metric) if count <= MOST_POINTS else {}
    values = str(Aggregate("values", box.field))
    boxes = [
        Box(_say_key(row, names), row[values], row[str(box)], points.get(_say_key(row, names), ()))
        for row in rows
        if row[values]
    ]
    return draw_boxes(metric, boxes)


def _points(project: Project, runs: QuerySet[Run], query: Query, metric: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for key, value, run in values_in_groups(runs, query, metric, MOST_POINTS):
        found.setdefault(", ".join(map(pretty, key)), []).append(point_of(value, run, project))
    return found


def _say_key(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(pretty(row[name]) for name in names)
