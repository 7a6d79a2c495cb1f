"""`benchmarks.plans_of_queries`: the rows of large tables that a plan looked at, dropped ones included."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.plans_of_queries import rows_looked_at, rows_of
from tests.workers.crew import project, queue_runs
from webapp.runs.models import Run


def scan(table: str, rows: float, loops: int = 1, **more: object) -> dict[str, object]:
    told = {"Node Type": "Index Scan", "Relation Name": table, "Actual Rows": rows, "Actual Loops": loops}
    return told | more


def test_rows_are_those_of_all_loops_with_what_was_dropped() -> None:
    """Two processes each read 50 runs and dropped 10; 100 runs each had 0.25 figures looked up."""
    dropped = {"Rows Removed by Filter": 10}
    runs, figures = scan("runs_run", 50, 2, **dropped), scan("runs_runmetric", 0.25, 100)
    plan = {"Node Type": "Nested Loop", "Actual Rows": 25, "Actual Loops": 1, "Plans": [runs, figures]}
    assert rows_of(plan) == {"runs_run": 120, "runs_runmetric": 25}


def test_tables_that_do_not_grow_with_the_history_do_not_count() -> None:
    assert rows_of(scan("accounts_team", 1_000_000)).total() == 0


@pytest.mark.django_db
def test_the_query_that_looks_at_the_most_is_told_of() -> None:
    """No index orders runs by what stands inside a name: all five are looked at, and none is found."""
    first, *_ = queue_runs(project(), *[""] * 5)
    with CaptureQueriesContext(connection) as seen:
        assert Run.objects.filter(pk=first.pk).exists()
        assert Run.objects.filter(policy__contains="%").count() == 0
        assert Permission.objects.count() > 5
    assert rows_looked_at([query["sql"] for query in seen]) == {"runs_run": 5}
