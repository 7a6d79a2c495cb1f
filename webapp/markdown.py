"""Markdown that people write: without HTML of its own or pictures; names of members stand out."""

from __future__ import annotations

import functools
import re
from collections.abc import Container
from dataclasses import dataclass

from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

MENTION = re.compile(r"(?<![\w@])@([\w.+-]*\w)")


@dataclass(frozen=True)
class Fence:
    """A fenced block at the outermost level: what stands behind the fence and what is in it.

    ``line`` is its first line (from 1) and ``end`` its last.
    """

    info: str
    content: str
    line: int
    end: int

    @property
    def language(self) -> str:
        return (self.info.split() or [""])[0]


def render(text: str) -> SafeString:
    """Markdown as HTML: whatever tags are in it are text, addresses other than of the web are none."""
    return SafeString(_markdown().render(text))


def parts_of(text: str, languages: Container[str]) -> list[SafeString | Fence]:
    """The text as HTML, cut at the fences of these ``languages``, which come as they are."""
    parts: list[SafeString | Fence] = []
    prose: list[Token] = []
    markdown, env = _markdown(), dict[str, object]()

    def end_prose() -> None:
        if prose:
            parts.append(SafeString(markdown.renderer.render(prose, markdown.options, env)))
            prose.clear()

    for token in markdown.parse(text, env):
        begin, end = token.map or (0, 0)
        fence = Fence(token.info, token.content, begin + 1, end)
        if token.type == "fence" and not token.level and fence.language in languages:
            end_prose()
            parts.append(fence)
        else:
            prose.append(token)
    end_prose()
    return parts


def lines_of(text: str) -> list[str]:
    """The lines that a ``Fence`` counts: of Markdown only these three end one."""
    return re.split(r"\r\n|\r|\n", text)


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
