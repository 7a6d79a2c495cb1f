"""Files of runs of MLflow stores: those of a database lie in a folder, come once, and lead nowhere else."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.db import connection

from experiments.client import Server
from labtools import mlflow_files, mlflow_store
from labtools.mlflow_files import FileFolders, Unreached, files_below
from labtools.mlflow_store import read_store
from labtools.problems import Problem
from tests.webapp.logged.test_mlflow import IDS, TABLES
from webapp.api.models import KeptAnswer
from webapp.artifacts.models import Artifact
from webapp.logged.models import LoggedRun

#: As MLflow 3.17 has it; before MLflow 3 models were files of their run.
MODELS = """
CREATE TABLE logged_models (model_id TEXT, experiment_id INTEGER, name TEXT, artifact_location TEXT,
                            source_run_id TEXT, lifecycle_stage TEXT);
"""
POISON = "poison: no run's file"


def rows(*places: str) -> str:
    """Runs that have ended, with files at these places; a model of the first is at the last."""
    made = [
        f"INSERT INTO runs VALUES ('{run}', 'net {number}', 'FINISHED', {number}, 9, 'active', 1, '{place}');"
        for number, (run, place) in enumerate(zip(IDS, places, strict=False))
    ]
    model = f"INSERT INTO logged_models VALUES ('m-1', 1, 'best', '{places[-1]}', '{IDS[0]}', 'active');"
    return "\n".join([TABLES, MODELS, *made, model])


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """As `mlflow` without a server leaves it: the database, and `mlruns` next to it."""
    root = tmp_path / "store" / "mlruns" / "1"
    first = write(root / IDS[0] / "artifacts", notes__readme="hello", config="{}")
    write(root / IDS[1] / "artifacts", config="{}")
    model = write(root / "models" / "m-1" / "artifacts", MLmodel="flavors: {}")
    path = tmp_path / "store" / "mlflow.db"
    with sqlite3.connect(path) as database:
        database.executescript(rows(str(first), f"file://{root / IDS[1]}/artifacts", str(model)))
        database.execute("DELETE FROM runs WHERE run_uuid = ?", (IDS[2],))
    return path


@pytest.mark.django_db(transaction=True)
def test_files_of_a_databases_runs_come_once_however_often(
    store: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        assert mlflow_store.import_store(str(store), server.url) == 0
        told = capsys.readouterr().out
        assert "net 0: 0 points, 3 files\n" in told and "net 1: 0 points, 1 file\n" in told
        KeptAnswer.objects.all().delete()  # as after seven days
    first, second = (LoggedRun.objects.get(pk=run) for run in IDS[:2])
    assert sorted(one.name for one in first.files.all()) == ["best-MLmodel", "config", "notes-readme"]
    assert [one.name for one in second.files.all()] == ["config"]
    assert Artifact.objects.count() == 4
    readme = first.files.get(name="notes-readme")
    assert server.download(f"/api/v1/files/{readme.blob_id}") == b"hello"


@pytest.mark.django_db(transaction=True)
def test_a_way_that_is_cut_between_an_upload_and_its_run_makes_no_second_file(
    store: Path, server: Server
) -> None:
    mlflow_store.import_store(str(store), server.url)
    for logged in LoggedRun.objects.all():
        logged.files.clear()
    mlflow_store.import_store(str(store), server.url)
    assert Artifact.objects.count() == 4
    assert sum(logged.files.count() for logged in LoggedRun.objects.all()) == 4


@pytest.mark.django_db(transaction=True)
def test_a_file_that_changed_comes_and_one_in_the_trash_stays_there(store: Path, server: Server) -> None:
    mlflow_store.import_store(str(store), server.url)
    gone = Artifact.objects.get(name="notes-readme")
    Artifact.objects.filter(pk=gone.pk).update(trashed_at=gone.created_at)
    (store.parent / "mlruns" / "1" / IDS[1] / "artifacts" / "config").write_text('{"layers": 2}')
    mlflow_store.import_store(str(store), server.url)
    assert LoggedRun.objects.get(pk=IDS[1]).files.count() == 2
    assert list(Artifact.objects.filter(name="notes-readme")) == [gone]


@pytest.mark.django_db(transaction=True)
def test_a_server_of_postgres_whose_files_are_in_a_folder(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `mlflow server --backend-store-uri postgresql://... --artifacts-destination FOLDER` leaves it."""
    served = tmp_path / "served"
    write(served / "1" / IDS[0] / "artifacts", config="{}")
    write(served / "1" / IDS[1] / "artifacts", config="[]")
    told = connection.get_connection_params()
    parts = {"host": told.get("host", ""), "port": str(told.get("port", "")), "user": told["user"]}
    parts |= {"password": told.get("password", ""), "dbname": told["dbname"]}
    with psycopg.connect(**parts, autocommit=True) as database:
        database.execute("CREATE SCHEMA mlflow")
        try:
            database.execute("SET search_path TO mlflow")
            database.execute(
                rows(
                    f"mlflow-artifacts:/1/{IDS[0]}/artifacts",
                    f"mlflow-artifacts://tracking.example.org:5000/1/{IDS[1]}/artifacts",
                    "s3://bucket/1/models/m-1/artifacts",
                )
            )
            query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parts.items() if value)
            address = f"postgresql:///?{query}&options=-csearch_path%3Dmlflow"
            mlflow_store.import_store(address, server.url)
            said = capsys.readouterr().out
            assert "files of 2 runs were left out: mlflow-artifacts:/ is the server's: --artifacts" in said
            assert not Artifact.objects.exists()
            mlflow_store.import_store(address, server.url, served)
        finally:
            database.execute("DROP SCHEMA mlflow CASCADE")
    said = capsys.readouterr().out
    assert said.count(", 1 file\n") == 2
    assert "files of 2 runs were left out: 's3://bucket/1/models/m-1/artifacts' is no folder" in said
    assert {one.name for one in Artifact.objects.all()} == {"config"}


@pytest.mark.parametrize(
    "uri",
    [
        "mlflow-artifacts:/../../secret",
        "mlflow-artifacts:/%2e%2e/%2e%2e/secret",
        "mlflow-artifacts://host/../../secret",
        "{folder}/store/../secret",
        "file://{folder}/secret",
        "{folder}/secret",
        "{folder}/store/link",
        "/etc",
        "s3://bucket/secret",
        "mlflow-artifacts:/1/a%00b",
    ],
)
def test_what_a_store_says_leads_nowhere_else(tmp_path: Path, uri: str) -> None:
    write(tmp_path / "secret", key=POISON)
    store = write(tmp_path / "store", **{"mlflow.db": ""})
    (store / "link").symlink_to(tmp_path / "secret")
    (store / "mlartifacts").mkdir()
    folders = FileFolders.of(store / "mlflow.db", None)
    with pytest.raises(Unreached):
        folders.locate(uri.format(folder=tmp_path))
    named = FileFolders.of(store / "mlflow.db", tmp_path / "secret")
    assert named.locate(f"{tmp_path}/secret") == (tmp_path / "secret").resolve(), "unless it was named"


def test_links_out_of_a_runs_folder_are_passed_over_and_those_within_are_files(tmp_path: Path) -> None:
    write(tmp_path / "secret", key=POISON)
    folder = write(tmp_path / "run", weights="1", deep__log="2").resolve()
    (folder / "out").symlink_to(tmp_path / "secret" / "key")
    (folder / "outside").symlink_to(tmp_path / "secret")
    (folder / "latest").symlink_to(folder / "weights")
    (folder / "dangling").symlink_to(folder / "nothing")
    assert [file.name for file in files_below(folder, "net/")] == [
        "net-latest",
        "net-weights",
        "net-deep-log",
    ]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = write(tmp_path / "store", **{"mlflow.db": ""}) / "mlflow.db"
    with pytest.raises(Problem, match=r"there is no folder .*elsewhere"):
        FileFolders.of(store, tmp_path / "elsewhere")
    with pytest.raises(Unreached, match=r"there is no folder .*/store/mlartifacts: --artifacts"):
        FileFolders.of(store, None).locate("mlflow-artifacts:/1/a/artifacts")
    (store.parent / "mlartifacts").mkdir()
    place = FileFolders.of(store, None).locate("mlflow-artifacts:/1/a/artifacts")
    assert list(files_below(place)) == [], "a run without files has no folder"


@pytest.mark.django_db(transaction=True)
def test_too_many_and_too_large_files_are_told(
    store: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_files, "MOST_FILES", 2)
    monkeypatch.setattr(mlflow_files, "LARGEST_FILE", 2)
    mlflow_store.import_store(str(store), server.url)
    told = capsys.readouterr().out
    assert "net 0: 0 points, 1 file; 1 files beyond 2; notes-readme is larger than 0 MiB" in told
    assert {one.name for one in Artifact.objects.all()} == {"config"}


def test_a_folder_has_its_runs_files_and_models(tmp_path: Path) -> None:
    run, model = tmp_path / "1" / IDS[0], tmp_path / "1" / "models" / "m-1"
    write(run, **{"meta.yaml": f"run_id: {IDS[0]}\nartifact_uri: /moved/1/artifacts\nend_time: 9"})
    write(run / "artifacts", config="{}")
    write(model, **{"meta.yaml": f"name: best\nsource_run_id: {IDS[0]}\nlifecycle_stage: active"})
    (found,) = read_store(str(tmp_path))
    assert found.files == str(run / "artifacts")
    assert found.models == [("best", str(model / "artifacts"))]
