"""What `./lab harden` keeps of the long versions of tests."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from labtools import harden, testing
from labtools.layout import Layout
from labtools.problems import Problem
from tests import figures
from tests.conftest import ROOT

IMPORT = "from tests.variants import variants"
STORAGE, WALLS = harden.CHECKS["storage"], harden.CHECKS["walls"]


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Each call of pytest tells two figures from two processes; those of the walls fail."""
    calls: list[tuple[str, ...]] = []

    def run_tests(layout: Layout, extra: Sequence[str], fast: bool = False) -> testing.Result:
        calls.append(tuple(extra))
        figures.tell(runs=9)
        figures.tell(away=os.environ.get("LAB_STORAGE_AWAY"))
        failed = WALLS.tests[0] in extra
        return testing.Result("pytest", 1.0, int(failed), "= 1 failed =" if failed else "= 1 passed =")

    monkeypatch.setattr(testing, "run_tests", run_tests)
    monkeypatch.setattr(testing, "prepare", lambda *_: None)
    monkeypatch.setattr(harden.processes, "end_descendants", lambda: None)
    return calls


def carry_out(out: Path, *names: str) -> tuple[int, dict[str, Any]]:
    code = harden.harden(Layout.here(), names, out, [])
    return code, {row["name"]: row for row in json.loads(out.read_text())["checks"]}


def test_figures_verdicts_and_the_length_asked_for_are_kept(
    carried_out: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = carry_out(tmp_path / "new" / "found.json", "storage", "walls")
    assert code == 1
    assert carried_out == [(*STORAGE.tests, "--timeout=0"), (*WALLS.tests, "--timeout=0")]
    assert rows["storage"]["figures"] == {"runs": 9, "away": "20"}
    assert rows["walls"]["figures"] == {"runs": 9, "away": None}, "each has its own environment"
    assert (rows["storage"]["verdict"], rows["walls"]["verdict"]) == ("holds", "does not hold")
    assert not {"LAB_STORAGE_AWAY", harden.REPORT} & set(os.environ)
    assert "does not hold" in capsys.readouterr().out


def test_one_more_keeps_what_is_known_of_others(carried_out: list[tuple[str, ...]], tmp_path: Path) -> None:
    carry_out(tmp_path / "found.json", "walls")
    code, rows = carry_out(tmp_path / "found.json", "storage")
    assert (code, list(rows)) == (0, ["walls", "storage"])


def test_without_names_all_are_carried_out(carried_out: list[tuple[str, ...]], tmp_path: Path) -> None:
    assert list(carry_out(tmp_path / "found.json")[1]) == list(harden.CHECKS)


def test_a_file_of_another_kind_is_not_written_over(
    carried_out: list[tuple[str, ...]], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.json"
    for content in ("not JSON", "[]", '{"format": "another"}'):
        mine.write_text(content)
        with pytest.raises(Problem, match="holds something else"):
            harden.harden(Layout.here(), ["storage"], mine, [])
        assert mine.read_text() == content
    assert not carried_out


def test_every_check_names_tests_that_are_there() -> None:
    assert all(Path(check.tests[0]).is_file() for check in harden.CHECKS.values())
    for check in harden.CHECKS.values():
        folders = Path(check.tests[0]).parent, ROOT / "tests"
        text = "".join(path.read_text() for folder in folders for path in folder.glob("*.py"))
        assert all(name in text for name in check.environment)


def test_every_file_with_cases_that_the_suite_leaves_out_is_carried_out() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if f"\n{IMPORT}" in path.read_text()]
    assert sorted(str(path.relative_to(ROOT)) for path in files) == list(harden.VARIED)
