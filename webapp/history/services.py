"""Changes of tags and saved views."""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet

from webapp.accounts.models import Project, User
from webapp.history.models import RunTag, SavedView
from webapp.runs.models import Run

#: Runs that one request may tag.
MOST_AT_ONCE = 2000


@transaction.atomic
def tag(runs: QuerySet[Run], name: str, user: User) -> int:
    """Puts the tag on those of the runs that lack it, and returns how many have it now."""
    found = list(runs)
    RunTag.objects.bulk_create([RunTag(run=run, name=name, by=user) for run in found], ignore_conflicts=True)
    return len(found)


@transaction.atomic
def untag(runs: QuerySet[Run], name: str) -> int:
    return RunTag.objects.filter(run__in=runs, name=name).delete()[0]


def keep_view(project: Project, owner: User, name: str, query: str, columns: str, shared: bool) -> SavedView:
    """The owner's view of that name, as it is now."""
    told = {"query": query, "columns": columns, "shared": shared}
    made, _ = SavedView.objects.update_or_create(project=project, owner=owner, name=name, defaults=told)
    return made
