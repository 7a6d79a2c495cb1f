from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.paper import Claim, evaluate, judge, load_sheet

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


def claim(**values: object) -> Claim:
    return Claim(**{"id": "c", "text": "t", "where": "w", "value": 1.5, "tolerance": 0.1, **values})  # type: ignore[arg-type]


def test_a_figure_is_arithmetic_over_runs() -> None:
    metrics = {"a": {"t": 6.0}, "b": {"t": 2.0}}
    assert evaluate("1 - b.t / a.t", metrics) == pytest.approx(2 / 3)
    assert evaluate("-(a.t - b.t) * 2", metrics) == -8
    with pytest.raises(BadInput, match="not allowed"):
        evaluate("__import__('os')", metrics)
    with pytest.raises(KeyError, match="speed"):
        evaluate("a.speed", metrics)


def test_the_verdict_follows_the_rule() -> None:
    assert judge(claim(), 1.4).verdict == "reproduced"
    assert judge(claim(), 1.2).verdict == "not reproduced"
    assert judge(claim(neutral=1.0), 1.2).verdict == "direction only"
    assert judge(claim(neutral=1.0), 0.9).verdict == "not reproduced"
    assert judge(claim(), float("nan")).verdict == "not reproduced"


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
        ('figure = "slow.step_time / fast.step_time"\n', "", "needs value, figure and runs, or not_run"),
        ("year = 2020", "yaer = 2020", "yaer"),
        ("[paper]", "[papr]", "unknown table 'papr'"),
    ],
)
def test_a_wrong_sheet_is_named(tmp_path: Path, before: str, after: str, complaint: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(SHEET.replace(before, after))
    with pytest.raises(BadInput, match=complaint):
        load_sheet(path, "ours")
