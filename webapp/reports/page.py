"""A report as it is shown: prose, and blocks with what they found or why they cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.safestring import SafeString

from webapp.accounts.models import Project
from webapp.compare.export import cells_of, markdown_escape, to_markdown
from webapp.history.services import search_url
from webapp.markdown import Fence, lines_of, parts_of
from webapp.navigation import project_url
from webapp.reports.blocks import LANGUAGES, Block, BlockError, block_of
from webapp.reports.content import Content, content_of
from webapp.reports.models import Frozen, Report
from webapp.reports.references import bibtex_of

#: Searches of one report: each is asked whenever the page is.
MOST_BLOCKS = 30


@dataclass(frozen=True)
class Shown:
    """A cell as it is shown; those of figures stand right."""

    text: str
    is_figure: bool


@dataclass(frozen=True)
class Line:
    """A row of a table with the page of its run, where it is one."""

    cells: Sequence[Shown]
    href: str


@dataclass(frozen=True)
class Part:
    """Prose; or a ``fence`` with its ``block`` and ``content``, or with a ``complaint``."""

    html: SafeString | None = None
    fence: Fence | None = None
    block: Block | None = None
    content: Content | None = None
    frozen: Frozen | None = None
    complaint: str = ""
    heading: Sequence[Shown] = ()
    lines: Sequence[Line] = ()
    plot: Mapping[str, Any] | None = None
    href: str = ""


def parts(report: Report, text: str, whole: str = "") -> list[Part]:
    """The report's text, cut at its blocks. The block with the key ``whole`` has as many rows as one may."""
    kept = {one.key: one for one in report.frozen.select_related("by")}
    found: list[Part] = []
    for part in parts_of(text, LANGUAGES):
        if isinstance(part, SafeString):
            found.append(Part(part))
        else:
            is_one_more = sum(one.fence is not None for one in found) >= MOST_BLOCKS
            found.append(_part(report, part, is_one_more, kept, whole))
    return found


def _part(report: Report, fence: Fence, is_one_more: bool, kept: Mapping[str, Frozen], whole: str) -> Part:
    try:
        block = block_of(fence)
        if is_one_more:
            raise BlockError(f"a report has at most {MOST_BLOCKS} tables and plots")
    except BlockError as error:
        return Part(fence=fence, complaint=f"Line {fence.line}: {error}.")
    block = widen(block, whole)
    frozen = kept.get(block.key)
    found = content(report, block, frozen)
    figures = [column.is_figure for column in found.table.columns]
    heading, *rows = [list(map(Shown, row, figures)) for row in cells_of(found.table)]
    hrefs = [project_url(report.project, "runs:run", run=run) for run in found.runs]
    return Part(
        fence=fence,
        block=block,
        content=found,
        frozen=frozen,
        heading=heading,
        lines=[Line(row, href) for row, href in zip(rows, hrefs or [""] * len(rows), strict=True)],
        plot=_linked_plot(report.project, found.plot) if found.plot else None,
        href=search_url(report.project, block.text),
    )


def _linked_plot(project: Project, plot: Mapping[str, Any]) -> dict[str, Any]:
    """The plot with the page of each point's run."""
    series = [
        {**line, "href": [project_url(project, "runs:run", run=run) for run in line.get("runs", ())]}
        for line in plot["series"]
    ]
    return {**plot, "series": series}


def content(report: Report, block: Block, frozen: Frozen | None) -> Content:
    """What was kept of the block, else what it finds now."""
    return Content.from_json(frozen.found) if frozen else content_of(report.project, block)


def widen(block: Block, whole: str) -> Block:
    """The block without its author's limit where ``whole`` is its key."""
    return replace(block, limit=block.most) if block.key == whole else block


def blocks_by_key(text: str) -> dict[str, Block]:
    """The blocks of a text that can be read."""
    found = {}
    for part in parts_of(text, LANGUAGES):
        if isinstance(part, Fence):
            try:
                block = block_of(part)
            except BlockError:
                continue
            found[block.key] = block
    return found


def to_document(report: Report, text: str, whole: str = "") -> str:
    """The whole report as Markdown that stands alone: every block is the table that it found."""
    lines, last = lines_of(text), 0
    written = [f"# {markdown_escape(report.title)}", ""]
    for part in parts(report, text, whole):
        if part.fence:
            written += lines[last : part.fence.line - 1]
            written.append(
                to_markdown(part.content.table).rstrip() if part.content else f"> {part.complaint}"
            )
            last = part.fence.end
    return "\n".join([*written, *lines[last:]]).rstrip() + "\n"


def to_bibtex(report: Report, text: str, whole: str = "") -> str:
    """The papers of all systems that the report's tables name."""
    return bibtex_of(part.content.table for part in parts(report, text, whole) if part.content)
