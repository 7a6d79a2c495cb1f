"""Any table as CSV, Markdown, LaTeX (booktabs) or Parquet: one exporter, safe against what users name things.

CSV keeps every digit in SI units; Markdown and LaTeX round to three significant digits in one unit per
column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.text import slugify

from experiments.core.units import common_scale, significant
from webapp.compare.export_table import Cell, LongTable, Rows, Table, heading_of, label_with_unit
from webapp.compare.parquet import to_parquet

# CSV

#: What makes a spreadsheet run a cell: = + - @ and their full-width forms, also behind white space.
_FORMULA = re.compile(r"[\s\u0000-\u0020\ufeff]*[=+\-@＝＋－＠]|[\t\r\n]")


def guard(text: str) -> str:
    """``text`` with an apostrophe in front where a spreadsheet could take it for a formula (or
    for guarded).
    """
    return f"'{text}" if text.startswith("'") or _FORMULA.match(text) else text


def unguard(text: str) -> str:
    """The text that ``guard`` was given."""
    return text.removeprefix("'")


def _csv_cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return guard(cell) if isinstance(cell, str) else repr(cell)


def to_csv(table: Table) -> str:
    heading = [heading_of(column) for column in table.columns]
    return _csv_lines([(*heading, *(label for label, _ in table.constants))]) + _csv_rows(table, table.rows)


def _csv_rows(table: Table, rows: Rows) -> str:
    same = [value for _, value in table.constants]
    return _csv_lines((*row, *same) for row in rows) if same else _csv_lines(rows)


def _csv_lines(lines: Iterable[Sequence[Cell]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([_csv_cell(cell) for cell in line] for line in lines)
    return out.getvalue()


# What Markdown and LaTeX share: one unit per column.


def _scales(table: Table) -> list[tuple[float, str]]:
    return [
        common_scale([float(cell) for cell in cells if _is_number(cell)], column.unit)  # type: ignore[arg-type]
        for column, cells in zip(table.columns, _transposed(table), strict=True)
    ]


def _transposed(table: Table) -> list[list[Cell]]:
    return [[row[index] for row in table.rows] for index in range(len(table.columns))]


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _number(cell: int | float, size: float) -> str:
    if isinstance(cell, int) and size == 1:
        return str(cell)
    return significant(cell / size).replace(",", "")


Escape = Callable[[str], str]


def _texts(table: Table, escape: Escape, nothing: str) -> list[list[str]]:
    """Heading and rows as escaped text."""
    scales = _scales(table)
    heading = [
        escape(label_with_unit(column.label, unit))
        for column, (_, unit) in zip(table.columns, scales, strict=True)
    ]
    rows = [[_text(c, s[0], escape, nothing) for c, s in zip(row, scales, strict=True)] for row in table.rows]
    return [heading, *rows]


def _text(cell: Cell, size: float, escape: Escape, nothing: str) -> str:
    if cell is None or cell == "":
        return nothing
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return escape(cell) if isinstance(cell, str) else escape(_number(cell, size))


def cells_of(table: Table) -> list[list[str]]:
    """Heading and rows as a page shows them, one unit per column."""
    return _texts(table, str, "–")


# Markdown

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#$!])")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029]+")


def markdown_escape(text: str) -> str:
    """No markup, no HTML, no end of a cell or line."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", _BREAKS.sub(" ", text).translate(_HTML))


def to_markdown(table: Table) -> str:
    heading, *rows = _texts(table, markdown_escape, "–")
    rule = ["---:" if column.is_figure else "---" for column in table.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, rule, *rows)]
    above = [f"**{markdown_escape(table.title)}**", markdown_escape(table.notes)]
    return "\n\n".join([*filter(None, above), "\n".join(lines)]) + "\n"


# LaTeX

_LATEX: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    # After a row's \\ these two would be read as its options.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # No ligature into a dash.
    "-": "{-}",
    "–": "--",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "µ": r"\ensuremath{\mu}",
}
_POWER = re.compile(r"(-?[0-9.]+)e([+-][0-9]+)")


def latex_escape(text: str) -> str:
    """Every character stands for itself; a number with an exponent is set as one."""
    if power := _POWER.fullmatch(text):
        return rf"\ensuremath{{{power.group(1)}\times 10^{{{int(power.group(2))}}}}}"
    if re.fullmatch(r"-[0-9.]+", text):
        return rf"\ensuremath{{{text}}}"
    return "".join(_LATEX.get(letter, letter) for letter in _BREAKS.sub(" ", text))


def to_latex(table: Table) -> str:
    """A table environment, which says what packages it wants."""
    heading, *rows = (" & ".join(cells) + r" \\" for cells in _texts(table, latex_escape, "--"))
    alignment = "".join("r" if column.is_figure else "l" for column in table.columns)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex_escape('. '.join(filter(None, (table.title, table.notes))))}}}",
        rf"  \begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        f"    {heading}",
        r"    \midrule",
        *(f"    {row}" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    if any(r"\textquotedbl" in line for line in lines):
        lines[0] += r" \usepackage[T1]{fontenc}"
    return "\n".join(lines) + "\n"


# Over HTTP


@dataclass(frozen=True)
class Format:
    write: Callable[[Table], str | bytes]
    content_type: str
    suffix: str


FORMATS: Mapping[str, Format] = {
    "csv": Format(to_csv, "text/csv; charset=utf-8", "csv"),
    "markdown": Format(to_markdown, "text/markdown; charset=utf-8", "md"),
    "latex": Format(to_latex, "application/x-tex; charset=utf-8", "tex"),
    "parquet": Format(to_parquet, "application/vnd.apache.parquet", "parquet"),
}


def download(table: Table | LongTable, name: str) -> HttpResponseBase:
    """The table as a file; 404 for a format that does not exist. A long CSV is sent while it is read; other
    formats have to know all figures before they write one.
    """
    if name not in FORMATS:
        raise Http404(f"no export format {name!r:.40}; there are {', '.join(FORMATS)}")
    long, format = table if isinstance(table, LongTable) else LongTable(table), FORMATS[name]
    if name == "csv" and long.following:
        answer: HttpResponseBase = StreamingHttpResponse(_csv_pieces(long))
    else:
        answer = HttpResponse(format.write(long.whole))
    file_name = "-".join(filter(None, (slugify(long.table.title)[:80] or "table", slugify(long.part))))
    answer["Content-Type"] = format.content_type
    answer["Content-Disposition"] = f'attachment; filename="{file_name}.{format.suffix}"'
    return answer


async def _csv_pieces(long: LongTable) -> AsyncIterator[bytes]:
    """Asynchronous: Django collects any other answer whole before it sends."""

    def read_and_write(read: Callable[[], Rows]) -> bytes:
        return _csv_rows(long.table, read()).encode()

    yield to_csv(long.table).encode()
    for read in long.following:
        yield await sync_to_async(read_and_write)(read)
