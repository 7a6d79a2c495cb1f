"""How often a token may ask, and what a client does that asks too often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import redis
from django.test import Client

from experiments.client import server as client
from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.api import rate, services

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


@pytest.fixture(autouse=True)
def three_in_a_minute(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """The clock of the count, ten seconds before the end of a minute."""
    settings.API_REQUESTS_PER_MINUTE = 3
    clock = {"now": 6_000_050.0 - 6_000_000 % 60}
    monkeypatch.setattr(rate, "now", lambda: clock["now"])
    monkeypatch.setattr(rate, "_asked_again_at", 0.0)
    yield clock
    for key in rate._broker(settings.REDIS_URL).scan_iter("rate:*"):
        rate._broker(settings.REDIS_URL).delete(key)


def caller(place: Place) -> Client:
    _, secret = services.make_token(place.project.team, place.user, "test", Role.MEMBER)
    return Client(headers={"authorization": f"Bearer {secret}"})


def test_the_fourth_of_a_minute_is_told_when_to_ask_again(
    ada: Place, three_in_a_minute: dict[str, float]
) -> None:
    one, other = caller(ada), caller(ada)
    assert [one.get("/api/v1/runs").status_code for _ in range(3)] == [200] * 3
    held = one.get("/api/v1/runs")
    assert (held.status_code, held["Retry-After"]) == (429, "10")
    assert "3 times a minute" in held.json()["detail"] and held.json()["field"] is None
    assert one.post("/api/v1/runs", "{}", content_type="application/json").status_code == 429
    assert other.get("/api/v1/runs").status_code == 200, "tokens are counted apart"
    page = one.get(ada.url("all-runs/"), {"export": "csv"})
    assert (page.status_code, page["Retry-After"]) == (429, "10"), "tables as files count too"
    three_in_a_minute["now"] += 10
    assert one.get("/api/v1/runs").status_code == 200


def test_nobody_is_held_back_while_the_broker_is_away(
    ada: Place, three_in_a_minute: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def away(url: str) -> Any:
        asked.append(url)
        raise redis.ConnectionError("away")

    there = rate._broker
    monkeypatch.setattr(rate, "_broker", away)
    one = caller(ada)
    assert {one.get("/api/v1/runs").status_code for _ in range(5)} == {200}
    assert len(asked) == 1, "and it is left alone for a while"
    monkeypatch.setattr(rate, "_broker", there)
    three_in_a_minute["now"] += rate.LEFT_ALONE
    assert [one.get("/api/v1/runs").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_without_a_limit_nothing_is_counted(ada: Place, settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 0
    one = caller(ada)
    assert {one.get("/api/v1/runs").status_code for _ in range(5)} == {200}


class Busy(BaseHTTPRequestHandler):
    """Answers 429 as often as ``refusals`` says, then what was asked."""

    refusals = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        held = type(self).refusals > 0
        type(self).refusals -= 1
        self.send_response(429 if held else 200)
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(b'{"detail": "too often"}' if held else body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def busy() -> Iterator[str]:
    answering = HTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=answering.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{answering.server_port}"
    answering.shutdown()
    answering.server_close()


def test_the_client_waits_as_long_as_it_is_told_and_sends_again(
    busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(client.time, "sleep", slept.append)
    lab = client.Server(busy, "lab_x")
    Busy.refusals = 2
    assert lab.post("/runs", {"seed": 1}) == {"seed": 1}
    assert slept == [7.0, 7.0]
    Busy.refusals = 100
    with pytest.raises(client.Refused, match="429"):
        lab.post("/runs", {"seed": 1})
    assert len(slept) == 2 + client.HELD_BACK


@pytest.mark.parametrize(("told", "waits"), [("3", 3.0), ("999999", 90.0), ("", 1.0), ("Wed, 21", 1.0)])
def test_what_a_server_says_of_waiting_is_kept_within_reason(told: str, waits: float) -> None:
    assert client._seconds_to_wait(told) == waits
