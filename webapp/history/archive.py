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


def divide(found: QuerySet[Run], project: Project, query: Query) -> tuple[QuerySet[Run], QuerySet[Run]]:
    """What a search found, less archived runs where it does not ask for them, and those."""
    marks = RunTag.objects.filter(name=ARCHIVED)
    if is_asked_for(query) or not marks.filter(run__project=project).exists():
        return found, found.none()
    is_archived = Exists(marks.filter(run=OuterRef("pk")))
    return found.filter(~is_archived), found.filter(is_archived)
