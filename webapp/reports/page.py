"""A report as it is shown: prose, and blocks with what they found or why they cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from webapp.compare.export import cells_of, to_markdown
from webapp.markdown import Fence, parts_of
from webapp.navigation import project_url
from webapp.reports.blocks import LANGUAGES, Block, BlockError, block_of
from webapp.reports.content import Content, content_of, search_address
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
    """Prose; or a block with ``content``; or one with a ``complaint``. ``number`` counts the blocks."""

    html: SafeString | None = None
    number: int = 0
    block: Block | None = None
    content: Content | None = None
    frozen: Frozen | None = None
    complaint: str = ""
    source: str = ""
    heading: Sequence[Shown] = ()
    lines: Sequence[Line] = ()
    href: str = ""


def parts(report: Report, text: str) -> list[Part]:
    """The report's text, cut at its blocks."""
    kept = {one.key: one for one in report.frozen.select_related("by")}
    found: list[Part] = []
    for part in parts_of(text, LANGUAGES):
        if isinstance(part, SafeString):
            found.append(Part(part))
        else:
            found.append(_part(report, part, sum(bool(one.number) for one in found) + 1, kept))
    return found


def _part(report: Report, fence: Fence, number: int, kept: Mapping[str, Frozen]) -> Part:
    source = f"{fence.info}\n{fence.content.strip()}"
    try:
        block = block_of(fence)
        if number > MOST_BLOCKS:
            raise BlockError(f"a report has at most {MOST_BLOCKS} tables and plots")
    except BlockError as error:
        return Part(number=number, complaint=f"Line {fence.line}: {error}.", source=source)
    frozen = kept.get(block.key)
    found = content(report, block, frozen)
    figures = [column.is_figure for column in found.table.columns]
    heading, *rows = [list(map(Shown, row, figures)) for row in cells_of(found.table)]
    hrefs = [project_url(report.project, "runs:run", run=run) for run in found.runs]
    return Part(
        number=number,
        block=block,
        content=found,
        frozen=frozen,
        heading=heading,
        lines=[Line(row, href) for row, href in zip(rows, hrefs or [""] * len(rows), strict=True)],
        href=search_address(report.project, block),
    )


def content(report: Report, block: Block, frozen: Frozen | None) -> Content:
    """What was kept of the block, else what it finds now."""
    return Content.from_json(frozen.found) if frozen else content_of(report.project, block)


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


def to_document(report: Report, text: str) -> str:
    """The whole report as Markdown that stands alone: every block is the table that it found."""
    lines, last = text.splitlines(), 0
    written = [f"# {report.title}", ""]
    fences = [part for part in parts_of(text, LANGUAGES) if isinstance(part, Fence)]
    shown = [part for part in parts(report, text) if part.number]
    for fence, part in zip(fences, shown, strict=True):
        begin = fence.line - 1
        written += lines[last:begin]
        written.append(to_markdown(part.content.table).rstrip() if part.content else f"> {part.complaint}")
        last = _end_of(lines, begin) + 1
    return "\n".join([*written, *lines[last:]]).rstrip() + "\n"


def to_bibtex(report: Report, text: str) -> str:
    """The papers of all systems that the report's tables name."""
    return bibtex_of(part.content.table for part in parts(report, text) if part.content)


def _end_of(lines: Sequence[str], begin: int) -> int:
    """The line that closes the fence which line ``begin`` opens; the last one where nothing does."""
    opening = lines[begin].strip()
    mark = opening[0]
    fence = opening[: len(opening) - len(opening.lstrip(mark))]
    for number in range(begin + 1, len(lines)):
        line = lines[number].strip()
        if line.startswith(fence) and not line.strip(mark):
            return number
    return len(lines) - 1
