"""What cannot be read is refused in words, at every address; pages stay with whom they were made for."""

from __future__ import annotations

import threading

import pytest
from django.conf import settings
from django.test import Client

from tests.webapp.cast import Cast, experiment, signed_in
from tests.webapp.populated import things_of
from webapp.api.services import make_token

pytestmark = pytest.mark.django_db
LISTS = ("experiments/", "artifacts/", "hosts/", "hosts/validation", "nightly/", "tables/", "compare/")
FORM = "application/x-www-form-urlencoded"
UNREADABLE = (
    (f"{FORM}; charset=utf-16", b"name=x"),
    ("multipart/form-data", b"name=x"),
    ("multipart/form-data; boundary=\xff", b"name=x"),
    (FORM, b"&".join(b"a=1" for _ in range(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1))),
    (FORM, b"name=a%00b"),
)


@pytest.mark.parametrize("asked", ["-1", "0", "99999999", "9" * 5000, "NaN", "\u0663", "%00", ""])
def test_a_list_has_its_own_length_whatever_the_address_asks(cast: Cast, asked: str) -> None:
    for number in range(51):
        experiment(cast.project, f"number {number}")
    reader = signed_in(cast.vera)
    for page in LISTS:
        answer = reader.get(cast.url(f"{page}?per_page={asked}&page={asked}"))
        assert answer.status_code == (400 if asked == "%00" else 200), page
    if asked != "%00":
        assert reader.get(cast.url(f"experiments/?per_page={asked}")).content.count(b"number ") == 50


@pytest.mark.parametrize(("content_type", "body"), UNREADABLE)
def test_a_form_that_cannot_be_read_is_refused_in_words(cast: Cast, content_type: str, body: bytes) -> None:
    """Also where nothing is at the address, and by somebody who may not change anything there."""
    for user in (cast.ada, cast.vera, cast.sly):
        client = signed_in(user)
        client.handler.enforce_csrf_checks = True
        client.cookies["csrftoken"] = "c" * 32
        for page in ("/teams/new", cast.url("experiments/new"), "/accounts/login/"):
            answer = client.post(page, body, content_type, headers={"x-csrftoken": "c" * 32})
            assert answer.status_code == 400, page
            assert b"Bad Request" in answer.content
        assert client.post("/nowhere", body, content_type).status_code in (400, 404)


def test_a_form_that_is_too_large_is_said_to_be(cast: Cast) -> None:
    answer = signed_in(cast.ada).post("/teams/new", b"name=" + b"x" * (9 * 2**20), FORM)
    assert (answer.status_code, b"larger than this server takes" in answer.content) == (413, True)


def test_no_character_that_postgres_cannot_keep_comes_in(cast: Cast) -> None:
    """In the address, a parameter, and a cookie, whose octal escapes are read."""
    reader = signed_in(cast.ada)
    assert reader.get("/invitation/%00/").status_code == 400
    assert reader.get(cast.url("experiments/?experiments-q=%00")).status_code == 400
    assert reader.get("/api/v1/runs?state=%00").json()["detail"].startswith("The address")
    stranger = Client(headers={"cookie": 'sessionid="\\000\\000aaaaaaaaaaaa"'})
    assert stranger.get("/").status_code == 400


def test_a_token_opens_tables_as_files_and_no_page(cast: Cast) -> None:
    things = things_of(cast, cast.max, "red")
    secret = make_token(cast.red, cast.ada, "script", "member")[1]
    script = Client(headers={"authorization": f"Bearer {secret}"})
    file = script.get(cast.url("experiments/?export=csv"))
    assert (file.status_code, file["Content-Type"].split(";")[0]) == (200, "text/csv")
    assert script.get("/t/red/?export=csv&table=audit-").status_code == 200
    # Pages that have no table, or need somebody: as for everybody who is not signed in.
    uploaded = f"artifacts/uploads/{things['upload']}"
    for page in ("", "experiments/new", "experiments/preview", "artifacts/upload", uploaded, "advise/"):
        assert script.get(cast.url(f"{page}?export=csv")).status_code == 302, page
    # A page that has a table, asked for what is none.
    assert script.get(cast.url("experiments/?export=")).status_code == 404
    assert script.get(cast.url("compare/?export=csv")).status_code == 404


def test_pages_are_kept_by_nobody_and_static_files_by_everybody(cast: Cast) -> None:
    reader = signed_in(cast.vera)
    for page in (cast.url(), "/t/red/", "/accounts/login/", "/nowhere", "/api/v1/runs"):
        assert reader.get(page)["Cache-Control"] == "no-store", page


@pytest.mark.django_db(transaction=True)
def test_a_refusal_in_a_thread_of_its_own_leaves_no_connection_behind() -> None:
    """Over ASGI a page of what is not found is made in another thread than the request's."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import RequestFactory

    from webapp.refusals import not_found

    request = RequestFactory().get("/nowhere/")
    request.user = get_user_model().objects.create_user("ada")
    left: list[bool] = []

    def refuse_in_thread() -> None:
        assert not_found(request, Exception()).status_code == 404
        left.append(connection.connection is not None)

    thread = threading.Thread(target=refuse_in_thread)
    thread.start()
    thread.join()
    assert left == [False]
    connection.ensure_connection()
    assert not_found(request, Exception()).status_code == 404
    assert connection.connection is not None, "the request's own stays"
