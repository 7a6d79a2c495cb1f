"""Where the palette leads: pages, actions, and what has a name in the project."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import QuerySet

from experiments.core import registry
from experiments.core.policy import FAMILIES
from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact
from webapp.history.models import SavedView
from webapp.history.services import search_url
from webapp.navigation import MENU, project_url
from webapp.reports.models import Report
from webapp.runs.models import Experiment

LONGEST = 120
#: Of each kind, and policies.
MOST, MOST_POLICIES = 5, 8
#: What can be done, and where.
ACTIONS = (("New experiment", "runs:new"), ("New report", "reports:index"), ("Upload", "artifacts:index"))
#: Pages that the menu does not name.
PAGES = (("Leaderboards", "history:leaderboards"), ("Reports", "reports:index"))


@dataclass(frozen=True)
class Place:
    """``kind`` says in a word what it is."""

    label: str
    kind: str
    href: str


def places(project: Project, text: str, may_write: bool) -> list[Place]:
    """Those whose name has ``text`` in it, pages and actions first; at last all runs searched for it."""
    found = list(_pages(project, text))
    if may_write:
        actions = (Place(label, "do", project_url(project, address)) for label, address in ACTIONS)
        found += [place for place in actions if _has(place.label, text)]
    found += _things(project, text)
    if text:
        found += islice(_policies(project, text), MOST_POLICIES)
        found.append(Place(f"Search all runs for {text}", "search", search_url(project, _quote(text))))
    return found


def _pages(project: Project, text: str) -> Iterator[Place]:
    """Where nothing is typed the menu is on the page already."""
    pages = [(label, address) for address, label, _ in MENU if address != "project"]
    for label, address in (*pages, *PAGES) if text else ():
        if _has(label, text):
            yield Place(label, "page", project_url(project, address))


def _things(project: Project, text: str) -> Iterator[Place]:
    """The newest of each kind that somebody named so."""
    of_project = {"project": project}
    kinds: tuple[tuple[str, str, str, QuerySet[Any]], ...] = (
        ("artifact", "artifacts:artifact", "artifact", Artifact.objects.of(project)),
        (
            "experiment",
            "runs:experiment",
            "experiment",
            Experiment.objects.not_trashed().filter(**of_project),
        ),
        ("report", "reports:report", "report", Report.objects.filter(**of_project, trashed_at=None)),
    )
    for kind, address, part, rows in kinds:
        named = rows.filter(**{f"{_name_of(rows)}__icontains": text}) if text else rows
        for row in named.order_by("-pk" if kind != "experiment" else "-created_at")[:MOST]:
            yield Place(str(row), kind, project_url(project, address, **{part: row.pk}))
    if text:
        for view in SavedView.objects.filter(project=project, shared=True, name__icontains=text)[:MOST]:
            yield Place(view.name, "view", search_url(project, view.query, view.columns.split()))


def _name_of(rows: QuerySet[Any]) -> str:
    return "title" if rows.model is Report else "name"


def _policies(project: Project, text: str) -> Iterator[Place]:
    """Systems whose name begins so before those that have it elsewhere."""
    names = [(family, name) for family in FAMILIES for name in registry.family_policies(family)]
    asked = text.casefold().replace(" ", "_")
    matching = [pair for pair in names if asked in pair[1] or text.casefold() in pair[1]]
    for family, name in sorted(matching, key=lambda pair: (not pair[1].startswith(asked), pair[1])):
        yield Place(
            name, f"{family} policy", project_url(project, "papers:system", family=family, policy=name)
        )


def _has(label: str, text: str) -> bool:
    return text.casefold() in label.casefold()


def _quote(text: str) -> str:
    """As one word of a search."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
