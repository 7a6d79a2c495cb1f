"""The changes of a project as an Atom feed, at an address that is a secret of one person.

It opens for as long as the person is in the team and keeps the password.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import signing
from django.http import Http404
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed

from webapp.accounts.models import Membership, Project, User
from webapp.nightly import changes
from webapp.nightly.channels import line_of, link_of
from webapp.nightly.models import Change

SALT = "feed of changes"
ENTRIES = 50
#: What nobody needs to be told of in a feed.
UNTOLD = (Change.State.CONFIRMING, Change.State.UNCONFIRMED)


def address(project: Project, user: User) -> str:
    """Where this person's reader finds the feed of ``project``."""
    key = signing.dumps([project.pk, user.pk, _fingerprint(user)], salt=SALT)
    return f"{settings.PUBLIC_URL}{reverse('feed', kwargs={'key': key})}"


def _fingerprint(user: User) -> str:
    return user.get_session_auth_hash()[:16]


def project_behind(key: str) -> Project:
    """The project of an address, or 404 for one that is forged or has ended."""
    try:
        number, person, fingerprint = signing.loads(key, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError):
        raise Http404("no such feed") from None
    project = Project.objects.select_related("team").filter(pk=number, trashed_at=None).first()
    user = User.objects.filter(pk=person, is_active=True).first()
    if project is None or user is None or fingerprint != _fingerprint(user):
        raise Http404("no such feed")
    if not Membership.objects.filter(team=project.team, user=user).exists():
        raise Http404("no such feed")
    return project


def atom(project: Project) -> str:
    feed = Atom1Feed(
        title=f"Changes of {project}",
        link=f"{settings.PUBLIC_URL}{_page(project)}",
        description=f"Figures of {project} that stepped to another level at night",
    )
    for change in changes.of_project(project).exclude(state__in=UNTOLD)[:ENTRIES]:
        change.schedule.project = project
        feed.add_item(**_entry(change))
    text: str = feed.writeString("utf-8")
    return text


def _entry(change: Change) -> dict[str, Any]:
    return {
        "title": f"{change}: {change.get_state_display()}",
        "link": link_of(change),
        "description": line_of(change),
        "pubdate": change.found_at,
        "updateddate": change.decided_at or change.found_at,
        "unique_id": f"tag:lab,2026:change:{change.pk}",
    }


def _page(project: Project) -> str:
    return reverse("nightly:changes", kwargs={"team": project.team.slug, "project": project.slug})
