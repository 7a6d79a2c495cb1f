"""The database or the file storage away for a while: pages say so, what is sent waits, nothing is a fault."""

from __future__ import annotations

import errno
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.db import DatabaseError, connection, transaction
from django.test import Client

from tests.webapp.cast import make_cast, signed_in
from webapp.accounts.models import Project
from webapp.api.services import make_token
from webapp.outages import outage_of
from workers.services import free_port


@contextmanager
def database_away(seconds: float | None = None) -> Iterator[None]:
    """No connection inside the block, or for the first ``seconds`` of it."""
    known = connection.settings_dict["PORT"]

    def come_back() -> None:
        connection.settings_dict["PORT"] = known

    connection.close()
    connection.settings_dict["PORT"] = str(free_port())
    timer = threading.Timer(seconds, come_back) if seconds else None
    if timer:
        timer.start()
    try:
        yield
    finally:
        if timer:
            timer.join()
        come_back()


def asking(client: Client) -> Client:
    """A client that sees the answer to a fault and not the fault."""
    client.raise_request_exception = False
    return client


@pytest.mark.django_db(transaction=True)
def test_pages_say_that_the_database_is_away_and_what_is_sent_waits_for_it(settings: Any) -> None:
    settings.OUTAGE_WAIT_SECONDS = 0.5
    cast = make_cast()
    ada = asking(signed_in(cast.ada))
    token = make_token(cast.red, cast.ada, "nightly", "member")[1]
    api = {"headers": {"authorization": f"Bearer {token}"}}
    assert (ada.get("/", follow=True).status_code, ada.get("/readyz").json()) == (
        200,
        {"ready": True, "database": "ok", "files": "ok", "broker": "ok"},
    )
    with database_away():
        for address in ("/", cast.url("experiments/"), cast.url("no-such-page/")):
            page = ada.get(address)
            assert (page.status_code, page["Retry-After"]) == (503, "5"), address
            assert '<meta http-equiv="refresh" content="5">' in page.content.decode()
        answer = asking(Client()).get("/api/v1/runs", **api)
        assert answer.status_code == 503
        assert json.loads(answer.content)["detail"].startswith("the database does not answer")
        stranger = asking(Client())
        ready = stranger.get("/readyz")
        assert (ready.status_code, ready.json()["database"], stranger.get("/healthz").status_code) == (
            503,
            "away",
            200,
        )
        began = time.monotonic()
        page = ada.post(cast.url("experiments/new/"), {"name": "<b>kept</b>"})
        assert page.status_code == 503
        assert time.monotonic() - began >= 0.5, "it waited"
        assert 'name="name" value="&lt;b&gt;kept&lt;/b&gt;"' in page.content.decode()
        assert "refresh" not in page.content.decode()
    settings.OUTAGE_WAIT_SECONDS = 10
    with database_away(seconds=0.5):
        made = ada.post("/t/red/projects/new", {"name": "After the outage"})
    assert made.status_code == 302
    assert Project.objects.filter(name="After the outage").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_ends_inside_a_transaction_is_an_outage_and_a_wrong_statement_is_not() -> None:
    with pytest.raises(DatabaseError) as ended, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert outage_of(ended.value) == "database"
    connection.close()
    for wrong in ("SELECT no_such_column", "SELECT 1/0"):
        with pytest.raises(DatabaseError) as refused, connection.cursor() as cursor:
            cursor.execute(wrong)
        assert outage_of(refused.value) == ""
    with pytest.raises(DatabaseError) as late, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 20")
        cursor.execute("SELECT pg_sleep(2)")
    assert outage_of(late.value) == "", "a statement that took too long: the database is there"
    with pytest.raises(DatabaseError) as full, connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$")
    assert outage_of(full.value) == "database", "its disk is full"


@pytest.mark.django_db
def test_every_page_tells_of_a_program_that_ends_again_and_again(settings: Any, tmp_path: Path) -> None:
    cast, settings.VAR = make_cast(), tmp_path
    client = signed_in(cast.ada)
    assert "tried again" not in client.get(cast.url()).content.decode()
    said = {"pid": 1, "troubles": {"worker": "worker was ended by SIGKILL, 5 times of late"}}
    (tmp_path / "lab.json").write_text(json.dumps(said))
    assert (
        "worker was ended by SIGKILL, 5 times of late. It is tried again"
        in client.get(cast.url()).content.decode()
    )
    (tmp_path / "lab.json").write_text("{")
    assert client.get(cast.url()).status_code == 200


@pytest.mark.django_db
def test_a_full_disk_is_said_and_a_missing_file_stays_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert outage_of(OSError(errno.ENOSPC, "full")) == "file storage"
    assert outage_of(FileNotFoundError(errno.ENOENT, "none")) == ""
    monkeypatch.setattr(default_storage, "exists", fail)
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["files"]) == (503, "away")


@pytest.mark.django_db
def test_a_refused_request_is_one_line_with_the_id_that_its_answer_carries() -> None:
    from webapp.request_log import RequestFilter

    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    kept, log = Kept(), logging.getLogger("django.request")
    kept.addFilter(RequestFilter())
    kept.setFormatter(logging.Formatter("%(request_id)s %(message)s"))
    log.addHandler(kept)
    try:
        cast = make_cast()
        missing = signed_in(cast.ada).get("/t/red/no-such-project/")
        refused = signed_in(cast.vera).post(
            "/t/red/projects/new", {"name": "x"}, headers={"x-request-id": "from-the-proxy"}
        )
    finally:
        log.removeHandler(kept)
    assert (missing.status_code, refused.status_code) == (404, 403)
    assert refused["X-Request-ID"] == "from-the-proxy"
    assert [line.split()[0] for line in lines] == [missing["X-Request-ID"], "from-the-proxy"]
    assert not any("\n" in line for line in lines), lines
