"""Changes of tags and saved views, and where a search leads."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.db.models import QuerySet
from django.utils.http import urlencode

from webapp.accounts.models import Project, User
from webapp.history.models import RunTag, SavedView
from webapp.navigation import project_url
from webapp.runs.models import Run

#: Runs that one request may tag.
MOST_AT_ONCE = 2000


@transaction.atomic
def tag(runs: QuerySet[Run], name: str, user: User | None) -> int:
    """Puts the tag on those of the runs that lack it, and returns how many have it now."""
    found = list(runs)
    RunTag.objects.bulk_create([RunTag(run=run, name=name, by=user) for run in found], ignore_conflicts=True)
    return len(found)


@transaction.atomic
def untag(runs: QuerySet[Run], name: str) -> int:
    return RunTag.objects.filter(run__in=runs, name=name).delete()[0]


def search_url(project: Project, query: str, columns: Iterable[str] = ()) -> str:
    """The page of all runs with this search and these columns."""
    told = [("q", query), *(("column", name) for name in columns)]
    return f"{project_url(project, 'history:index')}?{urlencode(told)}"


def keep_view(project: Project, owner: User, name: str, query: str, columns: str, shared: bool) -> SavedView:
    """The owner's view of that name, as it is now."""
    told = {"query": query, "columns": columns, "shared": shared}
    made, _ = SavedView.objects.update_or_create(project=project, owner=owner, name=name, defaults=told)
    return made
