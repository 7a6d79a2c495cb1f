"""No body and no address makes the API fail: it answers, refuses, and keeps what it had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp import cast
from tests.webapp.api.calls import SPEC, Caller, outcome_of

pytestmark = pytest.mark.django_db
PATHS = ("/runs", "/experiments", "/outcomes")

BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"0",
    b'"text"',
    b"\xff\xfe",
    b"\x89PNG\r\n\x1a\n",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 5000,
    b'{"seed": ' + b"9" * 5000 + b"}",
    b'{"seed": 1e999}',
    b'{"seed": NaN}',
    b'{"seed": Infinity}',
    b'{"family": "memory", "family": "cluster"}',
    json.dumps({**SPEC, "policy": "base\0line"}).encode(),
    json.dumps({**SPEC, "policy": "\ud800"}).encode(),
    json.dumps({**SPEC, "\udc00": 1}).encode(),
    json.dumps({**SPEC, "knobs": {"\0": 1}}).encode(),
    json.dumps({**SPEC, "hardware": {"device": []}}).encode(),
    json.dumps({**SPEC, "hardware": {"cluster": 5}}).encode(),
    json.dumps({**SPEC, "hardware": [[]]}).encode(),
    json.dumps({**SPEC, "hardware": {"device": "a100-40g", "overrides": {"memory_bytes": "12"}}}).encode(),
    json.dumps({**SPEC, "workload": {"source": "artifact:" + "9" * 18}}).encode(),
    json.dumps({**SPEC, "workload": {"source": "artifact:٣"}}).encode(),
    json.dumps({"runs": [None]}).encode(),
    json.dumps({"runs": {}}).encode(),
    json.dumps({"name": "\0", "runs": [SPEC]}).encode(),
    json.dumps({"name": 5, "runs": [SPEC]}).encode(),
]


@pytest.fixture
def caller() -> Caller:
    return Caller(cast.place("ada"))


@pytest.mark.parametrize("path", PATHS)
def test_a_bad_body_is_refused_in_words(caller: Caller, path: str) -> None:
    for body in BODIES:
        answer = caller.post(path, body)
        assert caller.last == 422, body[:80]
        assert answer["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/runs?limit=0",
        "/runs?limit=x",
        "/runs?limit=1e9",
        "/runs?after=x",
        "/runs?project=%ff",
        "/runs?state=",
    ],
)
def test_a_bad_parameter_is_refused_in_words(caller: Caller, path: str) -> None:
    assert caller.get(path)["detail"]
    assert caller.last == 422


def test_a_body_over_the_cap_is_refused(caller: Caller) -> None:
    assert caller.post("/runs", b" " * (9 * 2**20))["detail"]
    assert caller.last == 413


def test_an_artifact_number_beyond_the_column_does_not_exist(caller: Caller) -> None:
    caller.get("/artifacts/99999999999999999999999")
    assert caller.last == 404


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TEMPLATES: dict[str, dict[str, Any]] = {
    "/runs": SPEC,
    "/outcomes": outcome_of({}),
    "/experiments": {"name": "", "runs": [SPEC]},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in items for place in places(child, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_anything_anywhere_in_a_good_body_is_answered(caller: Caller, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(TEMPLATES)))
    body = replaced(
        TEMPLATES[path], data.draw(st.sampled_from(places(TEMPLATES[path]))), data.draw(json_values)
    )
    caller.post(path, json.dumps(body))
    assert caller.last in (200, 201, 422)
