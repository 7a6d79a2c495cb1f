"""Runs in groups: what a search with ``group by`` finds, as the page of all runs has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.http import HttpRequest
from ninja.params.functions import Query

from experiments.core.errors import BadInput
from experiments.core.metrics import known_or_plain
from webapp.api.application import REFUSALS, api, in_project, projects_of, runs_of
from webapp.api.endpoints import read_query
from webapp.api.schemas import GroupAnswer
from webapp.history.search import Query as Search
from webapp.history.table import MOST_GROUPS, find_groups


@api.get("/groups", response={200: GroupAnswer, **REFUSALS}, tags=["runs"])
def list_groups(
    request: HttpRequest,
    query: Annotated[str, Query(max_length=4000)],
    project: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_GROUPS)] = MOST_GROUPS,
) -> Any:
    """Groups of the runs that a search finds, the largest first, with their aggregates in SI units: `count`, and
    `min max mean median std interval` of a metric (`interval` is half the 95 % interval of the mean; it and `std`
    are null for a single run). There is no next page: `more` says that there are other, smaller groups.

    ```
    curl -H "Authorization: Bearer $TOKEN" -G --data-urlencode "query=state = succeeded group by policy, hardware: mean(step_time), interval(step_time), count" "$LAB/api/v1/groups"
    ```
    """  # noqa: E501
    search = _in_groups(query)
    runs = in_project(request, runs_of(request), project)
    found = find_groups(runs, projects_of(request, project), search, limit + 1)
    units = {str(one): known_or_plain(one.field.name).unit if one.field else "" for one in search.aggregates}
    names = list(dict.fromkeys(map(str, search.group)))
    return {
        "fields": names,
        "units": units,
        "groups": [_group(row, names, units) for row in found[:limit]],
        "more": len(found) > limit,
    }


def _in_groups(text: str) -> Search:
    """The search; ``BadInput`` where it has no groups, or an order, which groups do not have."""
    search = read_query(text)
    if not search.group:
        raise BadInput("no groups", "query", "group by policy: min(step_time), count")
    if search.order:
        raise BadInput("an order", "query", "groups alone: the largest come first")
    return search


def _group(row: Mapping[str, Any], names: list[str], units: Mapping[str, str]) -> dict[str, Any]:
    return {"keys": {name: row[name] for name in names}, "values": {name: row[name] for name in units}}
