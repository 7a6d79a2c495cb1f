"""Notes and comments on runs: Markdown without HTML of its own or pictures; names of members stand out."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from webapp.accounts.models import Project, User
from webapp.history.models import RunComment, RunNote
from webapp.runs.models import Run

MENTION = re.compile(r"(?<![\w@])@([\w.+-]*\w)")
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
    found = reader.mentions.filter(run__project=project).select_related("author", "run")
    return found.order_by("-at", "-pk")[:MOST_MENTIONS]


def render(text: str) -> SafeString:
    """Markdown as HTML: whatever tags are in it are text, addresses other than of the web are none."""
    return SafeString(_markdown().render(text))


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Beginnings that are good, instead of the library's list of bad ones."""
        return url.startswith(("https://", "http://", "/", "#", "mailto:")) and not url.startswith("//")


@functools.cache
def _markdown() -> MarkdownIt:
    """CommonMark with tables. Pictures would be fetched from elsewhere, so they are their words."""
    found = _Markdown("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    found.core.ruler.push("links_and_names", _mark)
    return found


def _mark(state: StateCore) -> None:
    """Links tell other sites nothing, and names behind an @ are strong."""
    for block in state.tokens:
        if block.type != "inline" or not block.children:
            continue
        marked: list[Token] = []
        for token in block.children:
            if token.type == "link_open":
                token.attrSet("rel", "nofollow noopener noreferrer")
            marked += _with_names(token) if token.type == "text" else [token]
        block.children = marked


def _with_names(token: Token) -> list[Token]:
    parts, begin = [], 0
    for found in MENTION.finditer(token.content):
        parts += [_text(token.content[begin : found.start()]), Token("strong_open", "strong", 1)]
        parts += [_text(found[0]), Token("strong_close", "strong", -1)]
        begin = found.end()
    return [*parts, _text(token.content[begin:])] if parts else [token]


def _text(content: str) -> Token:
    found = Token("text", "", 0)
    found.content = content
    return found
