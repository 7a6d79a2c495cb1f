"""Runs of MLflow stores as own runs: all of them, as they were, and once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from experiments.client import Server
from labtools import mlflow_store
from labtools.mlflow_store import StoredRun, read_store, records_of
from labtools.problems import Problem
from webapp.logged.models import Series
from webapp.runs.models import Experiment, Run

IDS = (
    "7c1675f45575435ca28cc62a94acce4b",
    "4dce5ed1fb884c3eb9e0c131b8fc46f9",
    "4da4a3b1b9c14f24b53adfc7d654389b",
)
#: The columns that are read, as MLflow 3 and 2 have them.
TABLES = """
CREATE TABLE experiments (experiment_id INTEGER, name TEXT);
CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, start_time BIGINT, end_time BIGINT,
                   lifecycle_stage TEXT, experiment_id INTEGER, artifact_uri TEXT);
CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN);
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);
INSERT INTO experiments VALUES (1, 'rates');
"""
STARTED = 1_790_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
        for number, (run, status, stage) in enumerate(
            zip(IDS, ("FINISHED", "FAILED", "RUNNING"), ("active",) * 3, strict=True)
        ):
            row = (run, f"net {number}", status, STARTED + number, STARTED + 60_000, stage, 1)
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", row)
            points = [("train loss", 1 / (1 + step), STARTED + step, run, step, 0) for step in range(30)]
            points += [("bad", 0.0, STARTED, run, 0, 1), ("bad", 1.7976931348623157e308, STARTED, run, 1, 0)]
            points += [("bad", 3.0, STARTED, run, -1, 0)]
            database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", points)
            database.execute("INSERT INTO params VALUES ('lr', '0.1', ?), ('name', 'sgd', ?)", (run, run))
            tags = [("mlflow.user", "ann", run), ("team", "a", run), ("note", "x" * 60, run)]
            database.executemany("INSERT INTO tags VALUES (?, ?, ?)", tags)
        database.execute("INSERT INTO runs VALUES ('dead', 'x', 'FINISHED', 1, 2, 'deleted', 1, NULL)")
    return path


@pytest.mark.django_db(transaction=True)
def test_a_store_is_brought_in_once_however_often(
    store: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert mlflow_store.import_store(str(store), server.url) == 0
        told = capsys.readouterr().out
        assert "2 runs of" in told and "1 were left out" in told and "1 points at negative steps" in told
    runs = {run.policy: run for run in Run.objects.filter(kind="logged")}
    assert {name: run.state for name, run in runs.items()} == {"net 0": "succeeded", "net 1": "failed"}
    one = runs["net 0"]
    assert one.pk.hex == IDS[0] and one.spec["knobs"] == {"lr": 0.1, "name": "sgd"}
    assert [tag.name for tag in one.tags.all()] == ["team.a"]
    assert one.logged.environment == {"user": "ann", "tag note": "x" * 60, "imported from": "MLflow"}
    loss, bad = (Series.objects.get(logged=one.pk, name=name) for name in ("train_loss", "bad"))
    assert (loss.count, loss.last_step, loss.last) == (30, 29, 1 / 30)
    assert (bad.count, bad.broken) == (2, 2)
    assert [made.name for made in Experiment.objects.all()] == ["rates"]


def test_a_folder_says_the_same_as_a_database(tmp_path: Path) -> None:
    run = tmp_path / "1" / IDS[0]
    for name in ("params", "tags", "metrics/val"):
        (run / name).mkdir(parents=True)
    (tmp_path / "1" / "meta.yaml").write_text("experiment_id: '1'\nname: rates\n")
    lines = [f"run_id: {IDS[0]}", "run_name: 'net: 0'", "status: 3", "start_time: 5000", "end_time: 9000"]
    (run / "meta.yaml").write_text("\n".join([*lines, "lifecycle_stage: active"]))
    (run / "params" / "lr").write_text("1e-3")
    (run / "tags" / "mlflow.user").write_text("ann")
    (run / "metrics" / "val" / "loss").write_text("6000 0.5 0\n7000 nan 1\n")
    (found,) = read_store(f"file://{tmp_path}")
    assert (found.name, found.experiment, found.status, found.end) == ("net: 0", "rates", "FINISHED", 9000)
    records, dropped = records_of(found)
    assert dropped == 0 and records[0]["begin"]["params"] == {"lr": 0.001}
    assert records[1:3] == [[0, 6.0, {"val/loss": 0.5}], [1, 7.0, {"val/loss": "nan"}]]
    assert records[-1] == {"end": {"state": "succeeded", "reason": "", "at": 9.0}}


def test_names_that_a_search_cannot_say_are_changed_and_stay_apart() -> None:
    keys = ("loss (ema)", "loss [ema]", "loss=(ema)", "x" * 70, "x" * 71, "x" * 72, " ")
    points = [(key, 1.0, 1, 0) for key in keys]
    records, _ = records_of(StoredRun("a", "", "", "FINISHED", 1, 2, points=points))
    names = [name for record in records[1:-1] for name in record[2]]
    assert len(set(names)) == len(keys)
    assert all(1 <= len(name) <= 60 and not set(name) & set(' ()<>=!,:"') for name in names)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("7", 7), ("True", True), ("nan", "nan"), ("1" * 30, "1" * 30), ("adam", "adam")],
)
def test_parameters_are_what_they_say(text: str, value: Any) -> None:
    records, _ = records_of(StoredRun("a", "", "", "FINISHED", 1, 2, params={"x": text}))
    found = records[0]["begin"]["params"]["x"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("content", "what"), [(None, "there is no MLflow store"), (b"x" * 200, "is no MLflow")]
)
def test_what_is_no_store_is_told(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "store.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Problem, match=what):
        list(read_store(str(path)))
