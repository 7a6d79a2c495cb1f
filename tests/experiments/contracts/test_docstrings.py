"""The first line of a docstring says what a class or function is, on one line; the rest follows a blank one.

Editors, ``help()`` and the catalog of policies show that line alone.
"""

from __future__ import annotations

import ast

import pytest

from tests.conftest import ROOT
from tests.experiments.contracts.statements import statements

WIDTH = 110


def first_lines_that_go_on(source: str) -> list[str]:
    """Public names whose docstring's first line is no whole sentence or is wider than the page."""
    return [
        node.name
        for node in statements(ast.parse(source))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not stands_alone(ast.get_docstring(node))
    ]


def stands_alone(docstring: str | None) -> bool:
    """Whether there is none, or its first line ends a sentence and nothing but a blank line follows."""
    if docstring is None:
        return True
    first, *rest = docstring.splitlines()
    return first.endswith(".") and len(first) <= WIDTH and not (rest and rest[0])


def test_first_lines_of_docstrings_stand_alone() -> None:
    files = sorted((ROOT / "experiments").rglob("*.py"))
    found = {str(file.relative_to(ROOT)): first_lines_that_go_on(file.read_text()) for file in files}
    assert {file: names for file, names in found.items() if names} == {}


WRAPPED = '"""Return the sum of both\n    numbers.\n    """'
UNENDED = '"""Return the sum of both numbers"""'
WHOLE = '"""Return the sum.\n\n    Of both numbers, whatever their\n    sign.\n    """'


@pytest.mark.parametrize(
    ("docstring", "expected"), [(WRAPPED, ["add"]), (UNENDED, ["add"]), (WHOLE, []), ("pass", [])]
)
def test_a_sentence_that_wraps_is_found(docstring: str, expected: list[str]) -> None:
    assert first_lines_that_go_on(f"class Sums:\n  def add(self):\n    {docstring}\n") == expected
    assert first_lines_that_go_on(f"def _add():\n    {docstring}\n") == []
