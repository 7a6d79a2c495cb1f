"""Runs of W&B as own runs, from two files that wandb 0.31.0 wrote offline.

The program of one logs a loss of 1 / (step + 1) and an accuracy of step / 4 for five steps, NaN at step 7 and
a histogram at step 9; that of the other ends with exit code 1 after a point.
"""

from __future__ import annotations

import math
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.client import Server
from labtools import wandb_folder
from labtools.problems import Problem
from labtools.wandb_folder import BLOCK_BYTES, MAGIC, FoundRun, files_in, read_file, records_in, records_of
from webapp.logged.models import Series
from webapp.runs.models import Experiment, Run

FOLDER = Path(__file__).parent / "wandb"


@pytest.mark.django_db(transaction=True)
def test_runs_come_with_parameters_figures_and_ends_once_however_often(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert wandb_folder.import_folder(FOLDER, server.url) == 0
        told = capsys.readouterr().out
        assert "2 runs of" in told and "17 points; no numbers: hist._type" in told
    runs = {run.policy: run for run in Run.objects.filter(kind="logged")}
    assert {name: run.state for name, run in runs.items()} == {
        "resnet18 lr=0.1": "succeeded",
        "crashed": "failed",
    }
    assert runs["crashed"].reason == "exit code 1"
    one = runs["resnet18 lr=0.1"]
    knobs = one.spec["knobs"]
    assert (knobs["lr"], knobs["optimizer.name"], knobs["amp"], knobs["note"]) == (0.1, "sgd", True, None)
    assert [tag.name for tag in one.tags.all()] == ["paper"]
    assert one.logged.environment["tag 1"] == "two words"
    loss, accuracy = (Series.objects.get(logged=one.pk, name=name) for name in ("train/loss", "accuracy"))
    assert (loss.count, loss.broken, loss.last_step, loss.least) == (6, 1, 7, 0.2)
    assert (accuracy.count, accuracy.largest, accuracy.last_step) == (5, 1.0, 4)
    assert [made.name for made in Experiment.objects.all()] == ["vision: sweep 1"]


def test_points_are_at_their_steps_and_moments() -> None:
    run = read_file(FOLDER / "run-abc12345.wandb")
    losses = [(step, value) for name, value, _, step in run.points if name == "train/loss"]
    assert losses[:5] == [(step, 1 / (step + 1)) for step in range(5)]
    assert losses[5][0] == 7 and math.isnan(losses[5][1])
    assert run.start < min(at for *_, at, _ in run.points) < run.start + 60
    assert ("nested.a", 4.0) in {(name, value) for name, value, *_ in run.points}


def test_records_over_several_blocks_are_put_together(tmp_path: Path) -> None:
    """As LevelDB writes them: parts fill a block, and too little room for a part is left empty."""
    bodies = [b"a" * 10, b"b" * 100_000, b"c" * (BLOCK_BYTES - 30), b"d"]
    data = bytearray(MAGIC + b"\xe1\xbe\x00")
    for body in bodies:
        rest, is_first = body, True
        while is_first or rest:
            room = BLOCK_BYTES - len(data) % BLOCK_BYTES
            if room < 7:
                data += b"\0" * room
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if is_first else 4) if not rest else (2 if is_first else 3)
            data += struct.pack("<IHB", 0, len(part), kind) + part
            is_first = False
    assert list(records_in(bytes(data))) == bodies
    assert list(records_in(bytes(data[:-1]))) == bodies[:-1]


def test_a_file_that_was_cut_off_keeps_what_it_has_and_says_so(tmp_path: Path) -> None:
    whole = (FOLDER / "run-abc12345.wandb").read_bytes()
    path = tmp_path / "run-cut.wandb"
    path.write_bytes(whole[:3000])
    run = read_file(path)
    assert 0 < len(run.points) < 17 and run.exit_code is None
    end = records_of(run)[-1]["end"]
    assert end["state"] == "failed" and "no end" in end["reason"]


def test_what_may_still_run_waits_and_links_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "wandb" / "run-1"
    there.mkdir(parents=True)
    shutil.copy(FOLDER / "run-zzz99999.wandb", there)
    (tmp_path / "wandb" / "latest-run").symlink_to(there)
    assert len(files_in(tmp_path)) == 1
    path = there / "run-zzz99999.wandb"
    path.write_bytes(path.read_bytes()[:700])
    monkeypatch.setenv("LAB_TOKEN", "x")
    assert wandb_folder.import_folder(tmp_path, "http://127.0.0.1:1") == 0
    assert "may still run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "what"), [(b"x" * 40, "is no run of W&B"), (MAGIC + b"\xe1\xbe\0", "names no run")]
)
def test_what_is_no_run_is_told(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(Problem, match="no run of W&B in"):
        files_in(tmp_path)
    (tmp_path / "a.wandb").write_bytes(content)
    with pytest.raises(Problem, match=what):
        read_file(tmp_path / "a.wandb")


def test_a_resumed_run_is_one_and_long_names_are_shortened() -> None:
    first = FoundRun(
        "a", "red", "vision", config={"lr": 1, "n" * 200: {"x": 2}}, points=[("loss", 2.0, 5.0, 0)]
    )
    later = FoundRun("a", "red", "vision", config={"lr": 3}, points=[("loss", 1.0, 9.0, 1)], exit_code=0)
    both = first.resumed_as(later)
    assert [value for _, value, *_ in both.points] == [2.0, 1.0] and both.uuid == first.uuid
    records = records_of(both)
    params = records[0]["begin"]["params"]
    assert params["lr"] == 3 and max(map(len, params)) == 120
    assert records[-1]["end"] == {"state": "succeeded", "reason": "", "at": 9.0}


@pytest.mark.django_db(transaction=True)
def test_a_run_that_the_lab_refuses_keeps_no_other_away(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_step_too_many(path: Path) -> FoundRun:
        run = read_file(path)
        return run if run.id == "zzz99999" else replace(run, points=[("loss", 1.0, run.start, 2**63)])

    monkeypatch.setattr(wandb_folder, "read_file", with_a_step_too_many)
    assert wandb_folder.import_folder(FOLDER, server.url) == 0
    assert "left out, the server refused (422)" in capsys.readouterr().out
    assert [run.policy for run in Run.objects.filter(kind="logged")] == ["crashed"]
