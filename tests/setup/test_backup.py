"""A lab in one archive and out again: counts, bytes and pages are equal, also while it is at work."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.files.base import ContentFile
from django.db import connection

from labtools import backup
from labtools.problems import Problem
from tests.webapp.cast import experiment, finished, make_cast, run_in, signed_in
from webapp.artifacts.services import store_upload
from webapp.runs.models import Run

JOBS = b"submit,gpus,service\n0,1,60\n10,1,60\n"
OTHER = "restored_by_a_test"


def address(name: str) -> str:
    given = connection.settings_dict
    return f"postgresql://{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}/{name}"


@contextmanager
def another_database() -> Iterator[str]:
    """An empty database on the server of the tests."""
    with psycopg.connect(address("postgres"), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {OTHER} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {OTHER}")
        try:
            yield address(OTHER)
        finally:
            server.execute(f"DROP DATABASE {OTHER} WITH (FORCE)")


@contextmanager
def using(name: str) -> Iterator[None]:
    """The pages read another database inside the block."""
    known = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = known


def rows_of(url: str) -> dict[str, int]:
    with psycopg.connect(url) as asked:
        tables = asked.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name: asked.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables}  # type: ignore[index,arg-type]


@pytest.mark.django_db(transaction=True)
def test_what_was_kept_comes_back_whole_while_rows_are_written(tmp_path: Path, settings: Any) -> None:
    files, kept = tmp_path / "here", tmp_path / "lab.tar"
    settings.MEDIA_ROOT = files
    cast = make_cast()
    artifact = store_upload(cast.project, cast.ada, "jobs.csv", ContentFile(JOBS))
    run = finished(run_in(experiment(cast.project), artifact, Run.State.SUCCEEDED))
    here = address(str(connection.settings_dict["NAME"]))
    pages = [cast.url(), cast.url("experiments/"), f"/t/red/vision/runs/{run.pk}/"]
    shown = {page: signed_in(cast.ada).get(page).status_code for page in pages}
    before, stop = rows_of(here), threading.Event()

    def write_rows() -> None:
        with psycopg.connect(here, autocommit=True) as writer:
            while not stop.is_set():
                writer.execute("INSERT INTO django_session VALUES (gen_random_uuid(), '', now())")

    writer = threading.Thread(target=write_rows)
    writer.start()
    try:
        backup.write(here, files, kept)
    finally:
        stop.set()
        writer.join()
    assert kept.stat().st_mode & 0o077 == 0, "nobody else may read it"
    with another_database() as there:
        about, count = backup.read(there, tmp_path / "there", kept, replace=False)
        assert count == 1
        restored = rows_of(there)
        sessions = "django_session"
        assert before[sessions] <= restored.pop(sessions) <= rows_of(here)[sessions]
        assert restored == {name: number for name, number in before.items() if name != sessions}
        [path] = (tmp_path / "there").rglob(str(artifact.blob_id))
        assert path.read_bytes() == JOBS
        with using(OTHER):
            assert {page: signed_in(cast.ada).get(page).status_code for page in pages} == shown
            assert Run.objects.get(pk=run.pk).spec == run.spec
        with pytest.raises(Problem, match="this lab has data"):
            backup.read(there, tmp_path / "there", kept, replace=False)
        backup.read(there, tmp_path / "there", kept, replace=True)
        assert about["made_at"]


def archive(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w") as made:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.django_db(transaction=True)
def test_what_is_no_backup_or_of_a_later_revision_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.tar").write_text("no archive")
    later = b'{"format": "mlsys-lab-backup-1", "made_at": "", "migrations": ["runs.9999_from_the_future"]}'
    cases = [
        (tmp_path / "text.tar", "is no whole backup"),
        (archive(tmp_path / "other.tar", readme=b"hello"), "is no backup of a lab"),
        (archive(tmp_path / "later.tar", **{"about.json": later}), "runs.9999_from_the_future is unknown"),
    ]
    with another_database() as there:
        for path, reason in cases:
            with pytest.raises(Problem, match=reason):
                backup.read(there, tmp_path / "files", path, replace=False)
        named = "ab" * 32
        known = b'{"format": "mlsys-lab-backup-1", "made_at": "", "migrations": []}'
        damaged = archive(
            tmp_path / "damaged.tar",
            **{"about.json": known, "database.dump": b"", f"files/ab/{named}": b"other"},
        )
        with pytest.raises(Problem, match="is damaged"):
            backup.read(there, tmp_path / "files", damaged, replace=False)
        assert not list((tmp_path / "files").rglob("*.part"))
        outside = archive(
            tmp_path / "outside.tar", **{"about.json": known, "database.dump": b"", "files/../../x": b"other"}
        )
        with pytest.raises(Problem, match="names a file outside"):
            backup.read(there, tmp_path / "files", outside, replace=False)
