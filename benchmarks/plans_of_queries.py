"""How many rows of the tables that grow with the history a query looks at, by its plan as carried out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

LARGE = (
    "runs_run",
    "runs_runmetric",
    "runs_rundocument",
    "runs_runcount",
    "runs_experiment",
    "logged_series",
)
#: What a scan drops after it has looked at it.
DROPPED = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
Plan = Mapping[str, Any]


def rows_looked_at(queries: Iterable[str]) -> Counter[str]:
    """By table: the rows that the one query looks at which looks at the most of all ``queries``."""
    from django.db import connection

    found = Counter[str]()
    with connection.cursor() as cursor:
        for query in queries:
            if query.startswith("SELECT"):
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query.replace('%', '%%')}", [])
                (told,) = cursor.fetchone()
                plan = told if isinstance(told, list) else json.loads(told)
                found = max(found, rows_of(plan[0]["Plan"]), key=Counter.total)
    return found


def rows_of(plan: Plan) -> Counter[str]:
    """By table: the rows of the large ones that the plan and all below it look at."""
    found = Counter[str]()
    for node in _nodes(plan):
        if "Scan" in node["Node Type"] and node.get("Relation Name") in LARGE:
            found[node["Relation Name"]] += _looked_at(node)
    return found


def _looked_at(scan: Plan) -> int:
    """Postgres tells the mean of a scan that is repeated, or shared by several processes."""
    rows = sum(float(scan.get(name, 0)) for name in ("Actual Rows", *DROPPED))
    return round(rows * float(scan["Actual Loops"]))


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
