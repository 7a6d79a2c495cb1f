"""Large files in chunks: broken off, resumed, refused at a wrong place, and nobody else's."""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webapp.browser import browser_page, serving, sign_in
from tests.webapp.cast import Cast, make_cast, signed_in
from webapp.artifacts import uploads
from webapp.artifacts.models import Artifact, Upload

CONTENT = bytes(range(256)) * 4


def begin(client: Client, cast: Cast, size: int = len(CONTENT), name: str = "trace.csv") -> Any:
    fields = {"name": name, "size": size, "fingerprint": f"{name}-{size}-1"}
    return client.post(cast.url("artifacts/uploads"), fields)


def send(client: Client, url: str, offset: int, chunk: bytes) -> Any:
    kind = "application/offset+octet-stream"
    return client.patch(url, chunk, content_type=kind, headers={"Upload-Offset": str(offset)})


@pytest.fixture
def max_(cast: Cast) -> Client:
    return signed_in(cast.max)


pytestmark = pytest.mark.django_db


def test_a_broken_off_upload_goes_on_where_it_was(cast: Cast, max_: Client) -> None:
    """After a reload the same file is known by its fingerprint; what is stored is the file, byte for byte."""
    first = begin(max_, cast)
    url = first["Location"]
    assert (first.status_code, first["Upload-Offset"]) == (201, "0")
    assert send(max_, url, 0, CONTENT[:300])["Upload-Offset"] == "300"
    again = begin(max_, cast)
    assert (again["Location"], again["Upload-Offset"]) == (url, "300")
    assert max_.head(url)["Upload-Offset"] == "300"
    assert "Unfinished uploads of yours" in max_.get(cast.url("artifacts/upload")).content.decode()
    last = send(max_, url, 300, CONTENT[300:])
    assert last.status_code == 201
    stored = Artifact.objects.get(name="trace.csv")
    assert stored.blob_id == hashlib.sha256(CONTENT).hexdigest()
    assert stored.runs.get().kind == "inspect"
    assert f"fate-{stored.pk}" in last.content.decode()


def test_a_last_answer_that_got_lost_makes_no_second_artifact(
    cast: Cast, max_: Client, django_capture_on_commit_callbacks: Any
) -> None:
    url = begin(max_, cast)["Location"]
    with django_capture_on_commit_callbacks(execute=True):
        send(max_, url, 0, CONTENT)
    assert not uploads.part(Upload.objects.get()).exists()
    repeated = send(max_, url, 0, CONTENT)
    assert (repeated.status_code, repeated["Upload-Offset"]) == (409, str(len(CONTENT)))
    assert max_.head(url)["Upload-Offset"] == str(len(CONTENT))
    assert "trace.csv" in max_.get(url).content.decode()
    assert Artifact.objects.count() == 1


def test_a_chunk_at_a_wrong_place_changes_nothing_and_is_told_the_right_one(cast: Cast, max_: Client) -> None:
    url = begin(max_, cast)["Location"]
    send(max_, url, 0, CONTENT[:100])
    for offset in (0, 99, 101, 10**9):
        answer = send(max_, url, offset, CONTENT[:50])
        assert (answer.status_code, answer["Upload-Offset"]) == (409, "100")
    for text in ("", "-1", "1e2", "9" * 40, "²"):
        headers = {"Upload-Offset": text.encode("utf-8").decode("latin-1")}
        assert max_.patch(url, b"x", content_type="application/x", headers=headers).status_code == 422
    send(max_, url, 100, CONTENT[100:])
    assert Artifact.objects.get().blob_id == hashlib.sha256(CONTENT).hexdigest()


def test_bytes_of_a_chunk_that_was_never_acknowledged_are_overwritten(cast: Cast, max_: Client) -> None:
    """As a server leaves it that was killed between writing and answering."""
    url = begin(max_, cast)["Location"]
    send(max_, url, 0, CONTENT[:100])
    with uploads.part(Upload.objects.get()).open("ab") as file:
        file.write(b"half a chunk")
    send(max_, url, 100, CONTENT[100:])
    assert Artifact.objects.get().blob_id == hashlib.sha256(CONTENT).hexdigest()


def test_a_part_that_got_lost_is_asked_for_from_the_start(cast: Cast, max_: Client) -> None:
    url = begin(max_, cast)["Location"]
    send(max_, url, 0, CONTENT[:100])
    uploads.part(Upload.objects.get()).unlink()
    assert max_.head(url)["Upload-Offset"] == "0"
    assert send(max_, url, 100, CONTENT[100:])["Upload-Offset"] == "0"
    assert send(max_, url, 0, CONTENT).status_code == 201


def test_caps_hold(cast: Cast, max_: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.UPLOAD_MAX_BYTES = 2000
    monkeypatch.setattr(uploads, "CHUNK", 500)
    monkeypatch.setattr(uploads, "MOST_UNFINISHED", 2)
    assert begin(max_, cast, size=2001).status_code == 422
    assert begin(max_, cast, size=0).status_code == 422
    url = begin(max_, cast)["Location"]
    assert send(max_, url, 0, CONTENT[:501]).status_code == 422
    send(max_, url, 0, CONTENT[:500])
    send(max_, url, 500, CONTENT[500:1000])
    assert send(max_, url, 1000, CONTENT[1000:] + b"x").status_code == 422
    assert begin(max_, cast, name="second.csv").status_code == 201
    assert "finish or discard one" in begin(max_, cast, name="third.csv").content.decode()
    assert not Artifact.objects.exists()


def test_nobody_else_reaches_an_upload(cast: Cast, max_: Client) -> None:
    """Not even an admin of the team: what is not complete is its sender's."""
    url = begin(max_, cast)["Location"]
    for user in (cast.ada, cast.sly):
        client = signed_in(user)
        assert send(client, url, 0, CONTENT).status_code == 404
        assert client.head(url).status_code == client.delete(url).status_code == 404
    assert begin(signed_in(cast.ada), cast)["Location"] != url
    assert begin(signed_in(cast.vera), cast).status_code == 403


def test_discarded_and_abandoned_uploads_leave_nothing(cast: Cast, max_: Client) -> None:
    url = begin(max_, cast)["Location"]
    send(max_, url, 0, CONTENT[:10])
    path = uploads.part(Upload.objects.get())
    assert max_.delete(url).status_code == 204
    assert not path.exists()
    url = begin(max_, cast)["Location"]
    send(max_, url, 0, CONTENT[:10])
    path = uploads.part(Upload.objects.get())
    Upload.objects.update(touched_at=timezone.now() - timedelta(days=8))
    begin(max_, cast, name="other.csv")
    assert not path.exists()
    assert list(Upload.objects.values_list("name", flat=True)) == ["other.csv"]


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_large_file_survives_a_lost_connection_and_a_reload(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third chunk never arrives at first: dropped again on a fresh page, only what is missing is sent."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setattr(uploads, "CHUNK", 2**16)
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast, content = make_cast(), os.urandom(5 * 2**16 + 7)
    drop = f"""() => {{
        const bytes = Uint8Array.from(atob("{b64encode(content).decode()}"), (c) => c.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], "large.bin", {{ lastModified: 1 }}));
        const input = document.getElementById("id_files");
        input.files = files.files;
        input.dispatchEvent(new Event("change"));
    }}"""
    with serving() as address, browser_page(expected=["net::ERR_FAILED"]) as page:
        sign_in(page, address, "max")
        sent: list[str] = []
        page.on("request", lambda r: sent.append(r.headers["upload-offset"]) if r.method == "PATCH" else None)
        page.route(
            "**/uploads/*",
            lambda route: (
                route.abort()
                if route.request.headers.get("upload-offset") == str(2**17)
                else route.continue_()
            ),
        )
        page.goto(address + cast.url("artifacts/upload"))
        page.evaluate(drop)
        page.get_by_text("connection lost, trying again").wait_for()
        page.reload()
        page.unroute("**/uploads/*")
        page.get_by_text("Unfinished uploads of yours").wait_for()
        before = len(sent)
        page.evaluate(drop)
        page.get_by_text("waiting to be read").wait_for()
    assert sent[before:] == [str(n * 2**16) for n in (2, 3, 4, 5)]
    assert Artifact.objects.get().blob_id == hashlib.sha256(content).hexdigest()
