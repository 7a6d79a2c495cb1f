"""Notes and comments on runs, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet
from django.utils.safestring import SafeString

from webapp.accounts.models import Project, User
from webapp.history.models import RunComment, RunNote
from webapp.markdown import MENTION, render
from webapp.runs.models import Run

#: Mentions on the home page.
MOST_MENTIONS = 5


@dataclass(frozen=True)
class Said:
    """A comment as the page shows it."""

    comment: RunComment
    html: SafeString
    is_own: bool


@dataclass(frozen=True)
class Discussion:
    """``note`` is rendered; ``text`` is what was written."""

    note: SafeString
    text: str
    edited: RunNote | None
    comments: Sequence[Said]


def discussion_of(run: Run, reader: User) -> Discussion:
    """What is written about a run."""
    note = RunNote.objects.filter(run=run).select_related("by").first()
    comments = run.comments.select_related("author")
    text = note.text if note else ""
    said = [Said(one, render(one.text), one.author_id == reader.pk) for one in comments]
    return Discussion(render(text), text, note, said)


@transaction.atomic
def write_note(run: Run, by: User, text: str) -> None:
    """The note from now on; none where the text is empty."""
    if text:
        RunNote.objects.update_or_create(run=run, defaults={"text": text, "by": by})
    else:
        RunNote.objects.filter(run=run).delete()


@transaction.atomic
def say(run: Run, author: User, text: str) -> RunComment:
    """A comment; members of the team whose names stand in it behind an @ are told on their home page."""
    made = RunComment.objects.create(run=run, author=author, text=text)
    members = User.objects.filter(memberships__team=run.project.team_id, username__in=MENTION.findall(text))
    made.mentioned.set(members.exclude(pk=author.pk))
    return made


def mentions_of(reader: User, project: Project) -> QuerySet[RunComment]:
    """The newest comments on runs of the project that name the reader."""
    found = reader.mentions.filter(run__project=project, run__trash=None).select_related("author", "run")
    return found.order_by("-at", "-pk")[:MOST_MENTIONS]
