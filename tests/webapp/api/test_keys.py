"""A request with a key is carried out once: whoever sends it again has the same answer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone

from tests.webapp.api.calls import SPEC, Caller, asked_runs
from tests.webapp.cast import Place
from webapp.api.models import KeptAnswer
from webapp.api.once import KEPT
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


class TestKeys:
    """A request with a key is carried out once, and answered the same again."""

    def send(self, caller: Caller, path: str, body: Any, key: str) -> Any:
        answer = caller.client.post(
            f"/api/v1{path}",
            json.dumps(body),
            content_type="application/json",
            headers={"Idempotency-Key": key},
        )
        caller.last = answer.status_code
        return answer.json()

    def test_the_same_request_again_makes_nothing_and_answers_the_same(self, caller: Caller) -> None:
        first = self.send(caller, "/runs", SPEC, "key-1")
        again = self.send(caller, "/runs", SPEC, "key-1")
        assert (caller.last, again) == (201, first)
        assert asked_runs() == 1
        assert self.send(caller, "/runs", SPEC, "key-2")["id"] != first["id"]
        experiment = self.send(caller, "/experiments", {"name": "two", "runs": [SPEC, SPEC]}, "key-3")
        assert self.send(caller, "/experiments", {"name": "two", "runs": [SPEC, SPEC]}, "key-3") == experiment
        assert asked_runs() == 4

    def test_another_request_with_the_key_is_refused(self, caller: Caller) -> None:
        self.send(caller, "/runs", SPEC, "key")
        found = self.send(caller, "/runs", {**SPEC, "seed": 1}, "key")
        assert caller.last == 422 and "another request" in found["detail"]
        assert asked_runs() == 1

    def test_what_was_refused_is_not_kept(self, caller: Caller) -> None:
        self.send(caller, "/runs", {**SPEC, "policy": "nonesuch"}, "key")
        assert caller.last == 422
        self.send(caller, "/runs", SPEC, "key")
        assert caller.last == 201

    def test_keys_are_each_tokens_own(self, caller: Caller, stranger: Caller) -> None:
        self.send(caller, "/runs", SPEC, "key")
        self.send(stranger, "/runs", SPEC, "key")
        assert stranger.last == 201 and asked_runs() == 2

    @pytest.mark.parametrize("key", ["", " ", "x" * 256, "\u00e4"])
    def test_no_key_that_could_be_meant_otherwise(self, caller: Caller, key: str) -> None:
        self.send(caller, "/runs", SPEC, key)
        assert caller.last == 422 and asked_runs() == 0

    def test_a_file_is_stored_once(self, caller: Caller) -> None:
        def upload(text: bytes) -> Any:
            file = SimpleUploadedFile("notes.txt", text)
            return caller.client.post("/api/v1/artifacts", {"file": file}, headers={"Idempotency-Key": "f"})

        first, again, other = upload(b"abc"), upload(b"abc"), upload(b"abcd")
        assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
        assert first.json()["id"] == again.json()["id"]

    def test_an_operation_that_makes_nothing_twice_by_itself_takes_a_key_too(self, caller: Caller) -> None:
        begin = b'{"begin": {"name": "resnet", "started": 1790000000.0}}\n'
        for _ in range(2):
            answer = caller.client.post(
                "/api/v1/logs/6f4c5ab0-4b0a-4f4e-8d52-0d6a6f0f2c11?offset=0",
                begin,
                content_type="application/x-ndjson",
                headers={"Idempotency-Key": "log"},
            )
            assert answer.status_code in (200, 409), answer.content
        assert Run.objects.filter(kind=Run.Kind.LOGGED).count() == 1 and not KeptAnswer.objects.exists()

    def test_old_answers_are_forgotten(self, caller: Caller) -> None:
        first = self.send(caller, "/runs", SPEC, "key")
        KeptAnswer.objects.update(made_at=timezone.now() - KEPT - timedelta(seconds=1))
        assert self.send(caller, "/runs", SPEC, "key")["id"] != first["id"]


@pytest.mark.django_db(transaction=True)
def test_requests_of_one_key_at_one_time_make_one_run(ada: Place) -> None:
    caller = Caller(ada)

    def send(_: int) -> str:
        try:
            answer = caller.client.post(
                "/api/v1/runs",
                json.dumps(SPEC),
                content_type="application/json",
                headers={"Idempotency-Key": "same"},
            )
            return str(answer.json()["id"])
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(send, range(8)))
    assert len(set(found)) == 1 and asked_runs() == 1
