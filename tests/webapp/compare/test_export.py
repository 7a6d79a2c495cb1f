"""Tables leave as files that no spreadsheet, Markdown or LaTeX reader can be tricked with."""

import csv
import io
import re

import pyarrow.parquet
import pytest
from django.http import Http404
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp import cast
from webapp.compare.export import download, to_csv, to_latex, to_markdown, unguard
from webapp.compare.export_table import Column, Table

HOSTILE = (
    '=HYPERLINK("http://evil","x")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "＝1+1",
    "＋1",
    "－1",
    "＠x",
    "\ufeff=1",
    "'=1",
)


def table_of(*cells: str) -> Table:
    return Table("names", (Column("name"),), tuple((cell,) for cell in cells))


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_spreadsheet_takes_no_name_for_a_formula(name: str) -> None:
    (cell,) = read(to_csv(table_of(name)))[1]
    assert cell == f"'{name}"
    assert unguard(cell) == name


def test_numbers_stay_numbers_with_every_digit() -> None:
    table = Table("n", (Column("time", "s", True), Column("jobs", "", True)), ((-0.1, -3), (1e-300, None)))
    assert to_csv(table) == "time (s),jobs\r\n-0.1,-3\r\n1e-300,\r\n"


def test_what_is_the_same_in_all_rows_goes_along() -> None:
    """As columns of a CSV, below the caption elsewhere."""
    table = Table("t", (Column("run"),), (("a",), ("b",)), (("batch", "8"), ("dtype", "float32")))
    assert read(to_csv(table)) == [["run", "batch", "dtype"], ["a", "8", "float32"], ["b", "8", "float32"]]
    assert to_markdown(table).startswith("**t**\n\nThe same in all: batch 8, dtype float32\n\n| run |\n")
    assert r"\caption{t. The same in all: batch 8, dtype float32}" in to_latex(table)


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_what_goes_into_csv_comes_out_of_it(cells: list[str]) -> None:
    rows = read(to_csv(Table("t", tuple(Column(f"c{i}") for i in range(len(cells))), (tuple(cells),))))
    assert [unguard(cell) for cell in rows[1]] == cells


def test_latex_rounds_in_one_unit_per_column() -> None:
    table = Table(
        "GPT-2, memory",
        (Column("run"), Column("peak memory", "bytes", True), Column("mfu", "fraction", True)),
        (("vdnn_all", 3 * 2**30, 0.4251), ("baseline", 512 * 2**20, None)),
    )
    assert to_latex(table) == "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            r"  \caption{GPT{-}2, memory}",
            r"  \begin{tabular}{lrr}",
            r"    \toprule",
            r"    run & peak memory (GiB) & mfu (\%) \\",
            r"    \midrule",
            r"    vdnn\_all & 3 & 42.5 \\",
            r"    baseline & 0.5 & -- \\",
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def test_latex_says_what_packages_its_letters_want() -> None:
    assert r"\usepackage[T1]{fontenc}" in to_latex(table_of("plain", 'a "quote"'))
    assert "fontenc" not in to_latex(table_of("plain", "none"))


def test_a_figure_that_is_not_finite_takes_no_part_in_the_choice_of_a_unit() -> None:
    """One run that diverged made the others' 1.5 s into 1.74e-05 days."""
    for broken in (float("inf"), float("nan")):
        rows = ((broken,), (1.5,), (0.25,))
        written = to_markdown(Table("t", (Column("step time", "s", True),), rows))
        assert "step time (s)" in written and "| 1.5 |" in written and f"| {broken} |" in written


def test_a_row_that_starts_with_a_bracket_is_no_option_of_the_row_before() -> None:
    text = to_latex(table_of("plain", "[1cm]", "*"))
    assert r"    {[}1cm{]} \\" in text
    assert r"    {*} \\" in text


def test_latex_sets_numbers_as_numbers() -> None:
    table = Table("e", (Column("error", "abs", True),), ((2.5e-16,), (-3.0,)))
    assert r"\ensuremath{2.5\times 10^{-16}}" in to_latex(table)
    assert r"\ensuremath{-3}" in to_latex(table)


@given(st.text(), st.lists(st.text(), max_size=4))
def test_latex_has_balanced_braces_and_no_command_of_a_user(title: str, cells: list[str]) -> None:
    text = to_latex(Table(title, (Column("a"),), tuple((cell,) for cell in cells)))
    bare = re.sub(r"\\[{}]", "", text)
    depth = 0
    for letter in bare:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    words = (
        "usepackage|begin|end|centering|caption|toprule|midrule|bottomrule|text[a-z]+|ensuremath|pm|times|mu"
    )
    known = rf"\\({words})"
    assert re.sub(rf"{known}(?![a-z])|\\[\\{{}}$&#%_]", "", text).count("\\") == 0
    assert len(text.splitlines()) == 11 + len(cells)


def test_markdown_keeps_cells_apart_and_shows_no_html() -> None:
    text = to_markdown(table_of("a|b", "`rm`", "<script>alert(1)</script>", "two\nlines", "[x](http://evil)"))
    assert text.splitlines()[2:] == [
        "| name |",
        "| --- |",
        r"| a\|b |",
        r"| \`rm\` |",
        "| &lt;script&gt;alert(1)&lt;/script&gt; |",
        "| two lines |",
        r"| \[x\](http://evil) |",
    ]


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_markdown_has_one_line_for_each_row(cells: list[str]) -> None:
    lines = to_markdown(table_of(*cells)).split("\n")
    assert len(lines) == 2 + 2 + len(cells) + 1
    assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 2 for line in lines[2:-1])


def test_a_download_is_named_after_the_table_and_an_unknown_format_is_not_found() -> None:
    answer = download(Table('x"; rm -rf\r\n', (Column("a"),), ()), "latex")
    assert answer["Content-Disposition"] == 'attachment; filename="x-rm-rf.tex"'
    with pytest.raises(Http404, match="xlsx"):
        download(table_of("a"), "xlsx")


@pytest.mark.django_db
def test_the_list_of_artifacts_leaves_as_it_is_filtered(client: Client) -> None:
    ada = cast.place("ada")
    client.force_login(ada.user)
    cast.ready(ada.project, name="=cmd|' /C calc'!A0")
    cast.ready(ada.project, "jobs", "trace")
    rows = read(client.get(ada.url("artifacts/?kind=model&export=csv")).content.decode())
    assert rows[0][:2] == ["Name", "Kind"]
    assert [row[:2] for row in rows[1:]] == [["'=cmd|' /C calc'!A0", "model"]]


def test_parquet_keeps_numbers_words_and_what_is_missing() -> None:
    figures = (Column("step time", "s", True), Column("n", "", True))
    columns = (Column("policy"), *figures, Column("ok"), Column("policy"))
    rows = (("=cmd", 0.1, 3, True, "a"), ("vdnn", None, 4, False, 7), ("g10", 2e-9, 5, None, None))
    table = Table("Step times", columns, rows, (("batch", "8"),))
    answer = download(table, "parquet")
    assert answer["Content-Type"] == "application/vnd.apache.parquet"
    assert 'filename="step-times.parquet"' in answer["Content-Disposition"]
    found = pyarrow.parquet.read_table(io.BytesIO(answer.content))
    assert found.to_pydict() == {
        "policy": ["=cmd", "vdnn", "g10"],
        "step time (s)": [0.1, None, 2e-9],
        "n": [3, 4, 5],
        "ok": [True, False, None],
        "policy 2": ["a", "7", None],
        "batch": ["8", "8", "8"],
    }
    assert [str(one) for one in found.schema.types[:4]] == ["string", "double", "int64", "bool"]
    assert found.schema.metadata[b"title"] == b"Step times"
    empty = pyarrow.parquet.read_table(io.BytesIO(download(Table("None", columns, ()), "parquet").content))
    assert empty.num_rows == 0
    assert [str(one) for one in empty.schema.types] == ["string", "double", "double", "string", "string"]
