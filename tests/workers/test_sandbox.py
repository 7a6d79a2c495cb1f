"""Trials in their cells: what they can reach, what ends them, and that nothing of them is left."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.workers import trials
from workers.sandbox import BUBBLEWRAP, LANDLOCK, LIMITS, TIERS, Cell, Limits, best_tier
from workers.trial import Ended, Trial, Watch, parse_progress

PROGRAM = Path(trials.__file__)
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every tier that this host can offer: the best and all below it."""
    if TIERS.index(request.param) < TIERS.index(best_tier()):
        pytest.skip(f"{request.param} cannot be had here: {best_tier()} is the best")
    yield request.param


def carry_out(
    tier: str, work: Path, *words: str, memory: int = 2**29, seconds: float = 60, stop: str = ""
) -> Ended:
    """Run one behavior of ``trials.py``; ``stop`` is the cause given as soon as it reported progress."""
    seen: list[float] = []
    command = [sys.executable, str(PROGRAM), "--progress-fd", "{progress}", *words]
    work.mkdir(exist_ok=True)
    trial = Trial(command, Cell(tier, work, (PROGRAM,)), Limits(memory, seconds), ENVIRONMENT)
    return trial.run(Watch(lambda fraction, _: seen.append(fraction), lambda: stop if seen else "", 0.0))


def processes_with(mark: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]


def test_a_confined_trial_reaches_its_own_folder_and_nothing_else(tier: str, tmp_path: Path) -> None:
    outside = tmp_path / "password"
    outside.write_text("secret")
    ended = carry_out(tier, tmp_path / "work", "look", str(outside))
    found = json.loads(ended.log)
    assert (ended.exit_code, ended.signal, ended.cause) == (0, "", "")
    assert found["write inside"] == "done"
    assert set(found["environment"]) <= {"PATH", "PYTHONPATH", "PWD", "LC_CTYPE"}
    if tier != LIMITS:
        assert "done" not in (found["outside file"], found["network"])
        # bubblewrap has an empty /tmp of its own to write to: what counts is that nothing comes out.
        assert not Path(f"{outside}.planted").exists()
    assert found["loopback"] == ("PermissionError" if tier == LANDLOCK else "done")


def test_the_real_program_runs_inside_every_tier(tier: str, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    command = [sys.executable, "-m", "experiments", "list", "--family", "cluster", "--json"]
    trial = Trial(command, Cell(tier, tmp_path), Limits(2**30, 60), ENVIRONMENT, stdout=told)
    ended = trial.run(Watch(lambda *_: None, lambda: "", 60.0))
    assert (ended.exit_code, ended.cause, ended.log) == (0, "", "")
    assert "fifo" in [row["name"] for row in json.loads(told.read_text())]


def test_a_segmentation_fault_is_told_by_its_signal(tier: str, tmp_path: Path) -> None:
    ended = carry_out(tier, tmp_path, "segfault")
    assert (ended.exit_code, ended.signal, ended.cause) == (None, "SIGSEGV", "")


def test_an_exit_code_and_the_last_lines_are_kept(tier: str, tmp_path: Path) -> None:
    ended = carry_out(tier, tmp_path, "exit", "2")
    assert (ended.exit_code, ended.signal) == (2, "")
    assert ended.log == "error: spec.policy: 'nonsense' is not a policy\n"


def test_allocating_without_end_is_ended_with_its_cause(tier: str, tmp_path: Path) -> None:
    ended = carry_out(tier, tmp_path, "allocate", memory=2**28)
    assert ended.cause == "took more than 0.25 GiB of memory" or "MemoryError" in ended.log
    assert 2**28 * 0.9 < ended.peak_bytes


def test_the_time_limit_ends_a_trial(tier: str, tmp_path: Path) -> None:
    assert carry_out(tier, tmp_path, "sleep", "600", seconds=0.3).cause == "took longer than 0.3 s"


def test_cancelling_ends_a_double_fork_that_ignores_sigterm(tier: str, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    ended = carry_out(tier, tmp_path, "fork", mark, stop="cancelled")
    assert ended.cause == "cancelled"
    assert processes_with(mark) == []


def test_a_child_left_behind_dies_with_its_trial(tier: str, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    ended = carry_out(tier, tmp_path, "leave-a-child", mark)
    assert (ended.exit_code, ended.cause) == (0, "")
    assert processes_with(mark) == []


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'{"progress": "x", "step": ""}', b'{"progress": 2, "step": ""}', b"\xff"]
)
def test_a_line_that_is_no_progress_is_nothing(line: bytes) -> None:
    assert parse_progress(line) is None


def test_progress_is_cleaned_of_what_the_database_refuses() -> None:
    assert parse_progress(b'{"progress": 0.5, "step": "a\\u0000b\\ud800"}') == (0.5, "ab?")


def test_bubblewrap_is_the_best_tier_where_it_starts() -> None:
    assert TIERS[0] == BUBBLEWRAP
    assert best_tier() in TIERS
