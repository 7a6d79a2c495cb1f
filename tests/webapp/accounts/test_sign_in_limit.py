"""Wrong passwords: an account at an address is closed for a while, and nobody else with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.db.models import F
from django.test import Client

from tests.webapp.cast import Cast
from tests.webapp.over_asgi import Application
from webapp.accounts.sign_in_limit import client_address

pytestmark = pytest.mark.django_db
ASKED = "/accounts/login/"


@pytest.fixture(autouse=True)
def counting(settings: Any) -> None:
    settings.AXES_ENABLED = True


def try_to_enter(name: str, password: str = "wrong", address: str = "10.0.0.1", **more: Any) -> Any:
    return Client().post(ASKED, {"login": name, "password": password}, REMOTE_ADDR=address, **more)


def turn_back(minutes: int) -> None:
    """All that was tried was tried so much earlier."""
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=minutes))


def test_names_tried_at_random_lock_out_nobody_else_at_the_address(cast: Cast) -> None:
    assert {try_to_enter(f"made up {number}").status_code for number in range(40)} == {200}
    assert try_to_enter("ada", "pw").status_code == 302


def test_the_tenth_wrong_password_closes_the_account_at_that_address(cast: Cast) -> None:
    """However the name is spelled, and not for the right password either; elsewhere the account is open."""
    spelled = ["ada", "ADA", " ada ", "Ada", "ａｄａ"] * 2
    statuses = [try_to_enter(name).status_code for name in spelled]
    assert statuses == [200] * 9 + [429]
    refused = try_to_enter("ada", "pw")
    assert refused.status_code == 429
    assert b"Try again in 15 minutes" in refused.content
    assert 840 < int(refused["Retry-After"]) <= 900
    assert try_to_enter("ada", "pw", "10.0.0.2").status_code == 302
    turn_back(minutes=16)
    assert try_to_enter("ada", "pw").status_code == 302


def test_trying_on_does_not_move_the_end_and_a_right_password_forgets_the_wrong(cast: Cast) -> None:
    for _ in range(9):
        try_to_enter("max")
    assert try_to_enter("max", "pw").status_code == 302
    assert [try_to_enter("max").status_code for _ in range(10)][-1] == 429
    turn_back(minutes=14)
    assert int(try_to_enter("max")["Retry-After"]) <= 60


def test_a_made_up_forwarding_header_is_nobodys_address(cast: Cast) -> None:
    made_up = [{"HTTP_X_FORWARDED_FOR": f"192.0.2.{number}"} for number in range(10)]
    assert [try_to_enter("ada", **header).status_code for header in made_up][-1] == 429


def test_one_network_of_ipv6_is_one_address(rf: Any) -> None:
    """Whoever has one address of it has 2^64; and what is no address at all is counted together."""
    asked = [client_address(rf.get("/", REMOTE_ADDR=f"2001:db8::{end}")) for end in ("1", "ffff")]
    assert asked == ["2001:db8::", "2001:db8::"]
    assert client_address(rf.get("/", REMOTE_ADDR="unknown")) is None


def test_odd_names_are_counted_and_break_nothing(cast: Cast) -> None:
    for name in ("x" * 5000, "\u202e", "", " ", "İ" * 200):
        assert try_to_enter(name, HTTP_USER_AGENT="x" * 999, HTTP_ACCEPT="y" * 9000).status_code == 200


def test_only_a_trusted_proxy_says_who_asks() -> None:
    """uvicorn's own middleware, told by the settings: nobody is trusted unless named."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    told: list[str] = []

    async def pages(scope: Any, receive: Any, send: Any) -> None:
        told.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    for trusted in ([], ["10.0.0.9"], ["127.0.0.0/8"]):
        application = Application(ProxyHeadersMiddleware(pages, trusted_hosts=trusted))
        application.ask("GET", "/", "", [("x-forwarded-for", "192.0.2.7, 203.0.113.5")], b"")
    assert told == ["127.0.0.1", "127.0.0.1", "203.0.113.5"]
