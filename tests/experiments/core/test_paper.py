from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.paper import load_sheet

SHEET = """
[paper]
key = "doe2020"
title = "A Policy"
authors = ["Jane Doe", "Max Roe"]
venue = "MLSys"
year = 2020
decides = "what moves"

[[claim]]
id = "faster"
text = "1.5x faster"
where = "abstract"
value = 1.5
figure = "slow.step_time / fast.step_time"
[claim.runs.slow]
policy = "baseline"
[claim.runs.fast]
policy = "ours"
"""


def test_a_sheet_is_read_with_its_citation(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(SHEET)
    sheet = load_sheet(path, "ours")
    assert sheet.paper is not None
    assert "author = {Jane Doe and Max Roe}" in sheet.paper.bibtex()
    assert [c.id for c in sheet.claims] == ["faster"]


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("[claim.runs.slow]", "[claim.runs.slwo]", "names the run 'slow'"),
        ('figure = "slow.step_time / fast.step_time"\n', "", "needs value, figure and runs, or cannot"),
        ("year = 2020", "yaer = 2020", "yaer"),
        ("[paper]", "[papr]", "unknown table 'papr'"),
        ("value = 1.5", 'value = 1.5\nbound = "over"', "unknown bound 'over'"),
        ("value = 1.5", 'value = 1.5\nproxy = "p"\nfree = ["color"]', "unknown free parameter 'color'"),
    ],
)
def test_a_wrong_sheet_is_named(tmp_path: Path, before: str, after: str, complaint: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(SHEET.replace(before, after))
    with pytest.raises(BadInput, match=complaint):
        load_sheet(path, "ours")
