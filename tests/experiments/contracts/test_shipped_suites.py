"""What ships of suites is of the suites as they now are, whole, and not too large to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.core.suite_evidence import load_suite_evidence, newest_suite_evidence
from experiments.core.suites import load_suite, suite_names

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "evidence"
FILE = newest_suite_evidence(FOLDER)
MOST_BYTES = 4_000_000


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_ships_or_says_why_not(name: str) -> None:
    """Where this fails: ``python -m experiments suites --run --out FILE --resume`` with the newest file."""
    assert FILE is not None
    suite = load_suite(name)
    row = load_suite_evidence(FILE).row(suite)
    assert row is not None, f"{name} has changed since its results shipped, or never had any"
    if row["left_out"]:
        assert row["runs"] == []
        return
    assert [run["title"] for run in row["runs"]] == [title for title, _ in suite.runs]
    assert row["revision"]
    assert any(run["metrics"] for run in row["runs"])


def test_the_file_is_small_enough_to_load_at_set_up() -> None:
    assert FILE is not None
    assert FILE.stat().st_size < MOST_BYTES
