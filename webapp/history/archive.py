"""Archived runs: out of the table of all runs, and everywhere else as they were.

A run is archived by a tag of that name, so that searches know it, a person may take it off, and a project
that keeps unmarked runs for a while keeps these.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from webapp.accounts.models import Project
from webapp.history.models import RunTag
from webapp.history.search import Query
from webapp.history.search.tree import And, Compare, Condition, Like, Not, OneOf, Or
from webapp.runs.models import Run

ARCHIVED = "archived"


def is_asked_for(query: Query) -> bool:
    """Whether a search names archived runs by their tag, and so shows them."""
    return query.condition is not None and _names_them(query.condition)


def _names_them(condition: Condition) -> bool:
    match condition:
        case And(parts) | Or(parts):
            return any(_names_them(part) for part in parts)
        case Not(of):
            return _names_them(of)
        case Compare(field, _, value):
            return field.kind == "tag" and value == ARCHIVED
        case OneOf(field, values):
            return field.kind == "tag" and ARCHIVED in values
        case Like(field, pattern):
            return field.kind == "tag" and pattern.strip("*") == ARCHIVED
    return False


def has_any(project: Project) -> bool:
    return RunTag.objects.filter(name=ARCHIVED, run__project=project).exists()


def without(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those of the runs that are not archived."""
    return runs.filter(~Exists(RunTag.objects.filter(run=OuterRef("pk"), name=ARCHIVED)))


def only(runs: QuerySet[Run]) -> QuerySet[Run]:
    return runs.filter(Exists(RunTag.objects.filter(run=OuterRef("pk"), name=ARCHIVED)))
