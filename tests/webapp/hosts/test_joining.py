"""Adding hosts on the page: who may, what the address does, which files a host's token opens."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.webapp.cast import Cast, signed_in
from webapp.accounts.models import Membership
from webapp.artifacts import arrivals
from webapp.artifacts.models import Blob
from webapp.artifacts.services import open_blob, store_file
from webapp.hosts import editions, joining
from webapp.hosts.models import Host, HostAccess, HostInvitation


@pytest.fixture(autouse=True)
def reachable(settings) -> None:  # type: ignore[no-untyped-def]
    settings.HOSTS_URL = "https://lab.example.org"
    settings.HOSTS_DATABASE_URL = "postgresql://lab.example.org:8444/lab?sslmode=verify-full"
    settings.HOSTS_REDIS_URL = "rediss://lab.example.org:8445/0"


def administrator(cast: Cast) -> Client:
    cast.ada.is_superuser = True
    cast.ada.save()
    return signed_in(cast.ada)


def join(secret: str, **edition: str) -> Any:
    body = {"secret": secret, "edition": {**editions.here(), **edition}}
    return Client().post("/hosts/join", json.dumps(body), content_type="application/json")


def joined(cast: Cast) -> dict[str, Any]:
    told: dict[str, Any] = join(joining.invite(cast.ada, "gpu-1")).json()
    return told


def test_an_administrator_of_the_lab_adds_a_host_and_nobody_else_does(cast: Cast) -> None:
    """The team's admin is none of the lab: a host carries out every team's runs."""
    for user in (cast.ada, cast.max, cast.vera):
        for answer in (
            signed_in(user).get(cast.url("hosts/add")),
            signed_in(user).post(cast.url("hosts/add"), {"name": "gpu-1"}),
            signed_in(user).post(cast.url("hosts/1/revoke")),
        ):
            assert answer.status_code == 403
    assert not HostInvitation.objects.exists()
    page = administrator(cast).post(cast.url("hosts/add"), {"name": "gpu-1"})
    command = page.context["command"]
    secret = command.removeprefix("./lab worker --join 'https://lab.example.org/hosts/join#").removesuffix(
        "'"
    )
    assert HostInvitation.objects.get().sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert page["Cache-Control"] == "no-store"
    assert command not in administrator(cast).get(cast.url("hosts/add")).content.decode()
    assert administrator(cast).post(cast.url("hosts/add"), {"name": "../x"}).status_code == 422


def test_an_address_works_once_within_a_day_for_the_labs_own_revision(cast: Cast) -> None:
    secret = joining.invite(cast.ada, "gpu-1")
    refused = join(secret, torch="1.0.0", revision="0123456789abcdef")
    assert refused.status_code == 403
    ours = editions.here()
    assert refused.json()["detail"] == (
        f"this host has revision 0123456789ab and torch 1.0.0, the lab revision {ours['revision'][:12]}"
        f" and torch {ours['torch'].partition('+')[0]}"
    )
    # Another build of the same release is the same release.
    told = join(secret, torch=f"{ours['torch'].partition('+')[0]}+cu999").json()
    assert told["database_url"].startswith(f"postgresql://{told['role']}:")
    assert told["database_url"].endswith("@lab.example.org:8444/lab?sslmode=verify-full")
    assert told["redis_url"].startswith(f"rediss://{told['role']}:")
    assert "opens nothing" in join(secret).json()["detail"]
    late = joining.invite(cast.ada, "gpu-2")
    HostInvitation.objects.filter(name="gpu-2").update(expires_at=timezone.now() - timedelta(seconds=1))
    assert join(late).status_code == 403
    same = joining.invite(cast.ada, "gpu-1")
    assert join(same).json()["detail"] == "a host named gpu-1 is there already"
    for nonsense in (b"", b"[]", b'{"secret": 1}', b'{"secret": "x", "edition": []}'):
        assert Client().post("/hosts/join", nonsense, content_type="application/json").status_code == 400
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = %s", [told["role"]])
        assert cursor.fetchone() == (False, False)


def test_the_page_revokes_role_and_token_and_the_name_is_free_again(cast: Cast) -> None:
    told, admin = joined(cast), administrator(cast)
    headers = {"Authorization": f"Bearer {told['token']}"}
    assert Client().get("/hosts/hello", headers=headers).json()["edition"] == editions.here()
    host = Host.objects.get(name="gpu-1")
    page = admin.get(cast.url("hosts/")).content.decode()
    assert told["role"] in page and "Revoke" in page
    assert told["role"] in signed_in(cast.vera).get(cast.url("hosts/")).content.decode()
    assert "Add a host" not in signed_in(cast.vera).get(cast.url("hosts/")).content.decode()
    admin.post(cast.url(f"hosts/{host.pk}/revoke"))
    assert Client().get("/hosts/hello", headers=headers).status_code == 401
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_roles WHERE rolname = %s", [told["role"]])
        assert cursor.fetchone() == (0,)
    assert admin.post(cast.url(f"hosts/{host.pk}/revoke")).status_code == 404
    assert join(joining.invite(cast.ada, "gpu-1")).status_code == 200
    assert HostAccess.objects.count() == 1


def test_a_lab_on_loopback_says_how_others_could_join(cast: Cast, settings) -> None:  # type: ignore[no-untyped-def]
    settings.HOSTS_DATABASE_URL = ""
    page = administrator(cast).post(cast.url("hosts/add"), {"name": "gpu-1"}).content.decode()
    assert "./lab up --listen" in page
    assert not HostInvitation.objects.exists()


def test_a_hosts_token_fetches_a_file_whole_or_from_any_byte_and_nobody_elses_does(cast: Cast) -> None:
    blob = store_file(ContentFile(b"0123456789"))
    address, headers = f"/hosts/files/{blob.sha256}", {"Authorization": f"Bearer {joined(cast)['token']}"}
    for refused in ({}, {"Authorization": "Bearer host_x"}, {"Authorization": "Basic x"}):
        for method in ("get", "head", "put"):
            assert getattr(Client(), method)(address, headers=refused).status_code == 401
    # The session of a person opens nothing here either.
    assert administrator(cast).get(address).status_code == 401
    asked = {"": (200, b"0123456789"), "bytes=4-": (206, b"456789"), "bytes=4-5": (206, b"45")}
    for span, (status, content) in asked.items():
        answer = Client().get(address, headers={**headers, **({"Range": span} if span else {})})
        assert (answer.status_code, b"".join(answer)) == (status, content)
        assert answer["Content-Length"] == str(len(content))
    assert Client().get(address, headers={**headers, "Range": "bytes=10-"}).status_code == 416
    assert Client().head(address, headers=headers)["Content-Length"] == "10"
    assert Client().get(f"/hosts/files/{'0' * 64}", headers=headers).status_code == 404


def test_a_file_is_handed_in_by_pieces_and_stored_only_as_what_it_claims_to_be(cast: Cast) -> None:
    content = b"a captured step"
    sha256, told = hashlib.sha256(content).hexdigest(), joined(cast)
    headers = {"Authorization": f"Bearer {told['token']}"}

    def put(piece: bytes, offset: int, name: str = sha256) -> tuple[int, Any]:
        where = f"/hosts/files/{name}?offset={offset}&size={len(content)}"
        answer = Client().put(where, piece, content_type="application/octet-stream", headers=headers)
        return answer.status_code, answer.json().get("received")

    assert put(content[:5], 0) == (202, 5)
    assert put(content[3:], 3) == (409, 5)
    assert not Blob.objects.exists()
    assert put(content[5:], 5) == (201, len(content))
    with open_blob(Blob.objects.get(pk=sha256)) as stored:
        assert stored.read() == content
    # Handed in again, it is there already.
    assert put(content[:5], 0)[0] == 201
    wrong = hashlib.sha256(b"something else").hexdigest()
    assert put(content, 0, wrong)[0] == 422
    assert put(content + b"more", 0, wrong)[0] == 422
    assert put(b"", 0, "x" * 64)[0] == 422
    assert arrivals.find_stored(wrong) is None
    assert Membership.objects.filter(user=cast.ada).exists()
