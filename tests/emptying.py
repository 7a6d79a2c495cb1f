"""What a test that commits leaves in the database is taken away, and what migrating put there stays."""

from __future__ import annotations

from typing import Any

from django.core.management.color import no_style
from django.db import connection
from django.test import TransactionTestCase

from webapp.runs import schedule

#: Filled by migrating, from the models alone: to fill them anew after each such test takes most of its end.
OF_MODELS = frozenset({"django_content_type", "auth_permission"})


def empty_database() -> None:
    """Leave what a database has right after it was migrated."""
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), sorted(tables - OF_MODELS)))
    schedule.install(None)


def empty_after_tests() -> None:
    """Let Django do so after each test that commits, instead of telling all apps that it migrated."""

    def tear_down(case: Any) -> None:
        empty_database()

    TransactionTestCase._fixture_teardown = tear_down
