"""Changes of tags and saved views."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db import transaction

from webapp.accounts.models import Project, User
from webapp.history.models import RunTag, SavedView
from webapp.history.table import runs_of

#: Runs that one request may tag.
MOST_AT_ONCE = 2000


@transaction.atomic
def tag(project: Project, runs: Iterable[UUID], name: str, user: User) -> int:
    """Puts the tag on those of the project's runs that lack it, and returns how many have it now."""
    found = list(runs_of(project).filter(pk__in=list(runs)[:MOST_AT_ONCE]))
    RunTag.objects.bulk_create([RunTag(run=run, name=name, by=user) for run in found], ignore_conflicts=True)
    return len(found)


@transaction.atomic
def untag(project: Project, runs: Iterable[UUID], name: str) -> int:
    found = runs_of(project).filter(pk__in=list(runs)[:MOST_AT_ONCE])
    return RunTag.objects.filter(run__in=found, name=name).delete()[0]


def keep_view(project: Project, owner: User, name: str, query: str, columns: str, shared: bool) -> SavedView:
    """The owner's view of that name, as it is now."""
    told = {"query": query, "columns": columns, "shared": shared}
    made, _ = SavedView.objects.update_or_create(project=project, owner=owner, name=name, defaults=told)
    return made
