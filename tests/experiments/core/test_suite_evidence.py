"""``suites --run --out``: what ships of every suite, and why the others do not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.commands import suites as command
from experiments.core import package_files
from experiments.core.errors import BadInput
from experiments.core.suite_evidence import load_suite_evidence, suite_evidence_of
from experiments.core.suites import load_suite

SUITE = load_suite("cluster-forty-jobs")
COMMAND = ("suites", "--run", "--progress", "none", SUITE.name)


def test_a_suite_is_carried_out_once_and_kept_with_revision_host_and_seconds(
    tmp_path: Path,
) -> None:
    """Options that have no effect are left out of a spec; resumed, an unchanged suite is not run again."""
    file = tmp_path / "suites.json"
    others = ("parallel-planners", "compilation-tuners")
    assert main([*COMMAND, *others, "--mode", "simulated", "--out", str(file)]) == 0
    evidence = load_suite_evidence(file)
    row = evidence.row(SUITE)
    assert row is not None
    assert [run["title"] for run in row["runs"]] == [title for title, _ in SUITE.runs]
    first = row["runs"][0]
    assert (first["status"], first["spec"]["workload"]["options"]) == ("ok", {})
    assert first["metrics"]["jobs"] == 40
    assert row["revision"]
    assert 0 < row["seconds"] < command.LONGEST
    assert {"host", "versions"} <= set(evidence.about)
    assert "not part of this release" in evidence.rows["parallel-planners"]["left_out"]
    assert evidence.rows["compilation-tuners"]["left_out"].startswith("its runs are measured, and only sim")
    before = file.read_text()
    main([*COMMAND, "--resume", "--out", str(file)])
    assert file.read_text() == before


def test_a_suite_that_takes_too_long_says_so_instead_of_figures(tmp_path: Path) -> None:
    file = tmp_path / "suites.json"
    main([*COMMAND, "--limit", "0", "--out", str(file)])
    row = load_suite_evidence(file).rows[SUITE.name]
    assert row["runs"] == []
    assert re.fullmatch("takes more than 0 s: [1-6] of its 6 runs by then", row["left_out"])


def test_what_a_run_or_a_file_of_it_changed_has_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    title, given = SUITE.runs[0]
    other = replace(SUITE, runs=((title, {**given, "policy": "las"}), *SUITE.runs[1:]))
    renamed = replace(SUITE, runs=(("first", given), *SUITE.runs[1:]))
    (tmp_path / "forty-jobs.csv").write_text("another trace")
    monkeypatch.setattr(
        package_files, "package_files", lambda: {"forty-jobs.csv": tmp_path / "forty-jobs.csv"}
    )
    other_file = replace(SUITE, about="")
    assert len({one.digest for one in (SUITE, other, renamed, other_file)}) == 4
    assert replace(other_file, title="said otherwise").digest == other_file.digest


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        ([], "not the evidence of suites"),
        ({"format": "mlsys-suites-1", "suites": [{"suite": "memory"}]}, "lacks digest"),
    ],
)
def test_another_file_is_refused_by_name(data: Any, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong) as error:
        suite_evidence_of(data, "other.json")
    assert "other.json" in str(error.value)


def test_a_file_without_a_run_is_refused() -> None:
    assert main(["suites", "--out", "never-written.json"]) == 2
