"""A trial's folder goes with the trial; one whose worker was killed goes when the next worker starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workers import scratch

HOLD = """
import sys
from workers import scratch
with scratch.folder() as work:
    (work / "step.npz").write_bytes(b"half a capture")
    print(work, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another worker's process with a trial's folder."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_a_folder_is_gone_when_its_trial_has_ended(tmp_path: Path) -> None:
    with scratch.folder() as work:
        (work / "spec.json").write_text("{}")
        assert scratch.sweep(young=0) == 0
    assert list(tmp_path.iterdir()) == []


def test_only_a_killed_workers_folder_is_swept(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert holder.stdout is not None
    work = Path(holder.stdout.readline().strip())
    (tmp_path / "trial-balloon.txt").write_text("not a folder")
    assert scratch.sweep(young=0) == 0
    assert (work / "step.npz").exists()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert scratch.sweep() == 0, "too young: it may have been made just now"
    assert scratch.sweep(young=0) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["trial-balloon.txt"]
