"""Blocks of a report: a fence that begins with ``runs`` or ``plot`` and has a search in it.

```runs title="Who fits" limit=10 columns=peak_memory,step_time
family = memory and hardware = rtx-4090-24g order by step_time
```

```plot x=peak_memory y=step_time
family = memory
```
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field

from webapp.history.search import Query, SearchError, parse
from webapp.history.search.words import say
from webapp.markdown import Fence
from webapp.runs.models import LONGEST_METRIC

TABLE, PLOT = LANGUAGES = ("runs", "plot")
OPTIONS = {TABLE: ("title", "limit", "columns"), PLOT: ("title", "limit", "x", "y")}
#: Rows of a table and points of a plot: where nothing is said, and at most.
USUAL, MOST = {TABLE: 20, PLOT: 500}, {TABLE: 200, PLOT: 2000}
LONGEST_TITLE = 160


class BlockError(Exception):
    """A block that cannot be read: what is wrong, and what would be right."""


@dataclass(frozen=True)
class Block:
    """``key`` tells it from all other blocks, by its own text. ``x`` and ``y`` are metrics of a plot; of
    grouped runs ``y`` is one of the search's aggregates.
    """

    kind: str
    text: str
    query: Query
    key: str
    title: str = ""
    limit: int = 0
    columns: tuple[str, ...] = field(default=())
    x: str = ""
    y: str = ""

    @property
    def heading(self) -> str:
        """Its title; where it has none, what it looks for."""
        return self.title or (say(self.query) if self.text else "All runs")

    @property
    def most(self) -> int:
        """The largest limit that its author could choose."""
        return MOST[self.kind]


def block_of(fence: Fence) -> Block:
    """Raises ``BlockError``."""
    kind, text = fence.language, " ".join(fence.content.splitlines()).strip()
    options = _options(kind, fence.info)
    try:
        query = parse(text)
    except SearchError as error:
        expected = f" (expected {error.expected})" if error.expected else ""
        raise BlockError(f"{error.what} at column {error.column} of “{text}”{expected}") from None
    block = Block(
        kind,
        text,
        query,
        hashlib.sha256(f"{fence.info}\n{text}".encode()).hexdigest(),
        options.get("title", "")[:LONGEST_TITLE],
        _limit(kind, options.get("limit")),
        tuple(name for name in options.get("columns", "").split(",") if name),
        options.get("x", ""),
        options.get("y", ""),
    )
    _refuse(block)
    return block


def _options(kind: str, info: str) -> dict[str, str]:
    try:
        words = shlex.split(info)[1:]
    except ValueError:
        raise BlockError(f"a quote is not closed in “{info}”") from None
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in OPTIONS[kind]:
            raise BlockError(
                f"“{word}” is no option of a block {kind} (expected {', '.join(OPTIONS[kind])}=…)"
            )
        found[name] = value
    return found


def _limit(kind: str, told: str | None) -> int:
    if told is None:
        return USUAL[kind]
    if not re.fullmatch(r"[0-9]{1,5}", told) or not 1 <= int(told) <= MOST[kind]:
        raise BlockError(f"“{told}” is no limit (expected a number from 1 to {MOST[kind]})")
    return int(told)


def _refuse(block: Block) -> None:
    """What only shows in the block as a whole."""
    if any(len(name) > LONGEST_METRIC for name in (*block.columns, block.x, block.y)):
        raise BlockError(f"a figure's name has at most {LONGEST_METRIC} characters")
    if block.query.group and block.columns:
        raise BlockError("a search in groups says its own columns, behind group by")
    if block.kind != PLOT:
        return
    if block.query.group:
        names = [str(one) for one in block.query.aggregates]
        if block.x or (block.y and block.y not in names):
            raise BlockError(f"a plot of groups has y={names[0]} or another of its aggregates, and no x")
    elif not (block.x and block.y):
        raise BlockError("a plot of runs names two figures (expected x=peak_memory y=step_time)")
