"""Events one after another: the same as the whole document, whatever the size of the blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.readers import event_stream
from experiments.readers.event_stream import EventStream

DOCUMENT = {
    "a": [1, {"b": "é\u2028"}],
    "traceEvents": [{"ts": 1.5, "name": "ä" * 40}, {}, {"x": [[]]}],
    "n": 1234567,
}


@pytest.mark.parametrize("block", [1, 3, 7, 1000])
@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT["traceEvents"], [], {"traceEvents": []}])
def test_blocks_of_any_size_give_the_document(
    block: int, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "BLOCK", block)
    stream = EventStream(json.dumps(document, ensure_ascii=False, indent=1).encode(), "a.json")
    events = list(stream)
    whole = {**stream.header, "traceEvents": events} if isinstance(document, dict) else events
    assert whole == document


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"traceEvents": [{"a": 1}', "ends too early"),
        (b'{"traceEvents": [{"a": 1} {"b": 2}]}', "one of ',]'"),
        (b'{"traceEvents": []} {}', "something follows"),
        (b'{"traceEvents": {"a": 1}}', "not a list of events"),
        (b'{"a": 1, "a": 2, "traceEvents": []}', "key 'a'"),
        (b'{"traceEvents": [{"a": NaN}]}', "NaN"),
        (b'{"traceEvents": [{"a": 1, "a": 2}]}', "appears twice"),
        (b'{"traceEvents": [' + b"[" * 5000 + b"]" * 5000 + b"]}", "too deeply"),
        (b'{"traceEvents": [' + b"[" * 70 + b"]" * 70 + b"]}", "too deeply"),
        (b'{"traceEvents": [{"a": "\\u0000"}]}', "NUL"),
        (b'{"traceEvents": ["\xff"]}', "not UTF-8"),
        (b'{"other": 1}', "no traceEvents"),
        (b"7", "where one of"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        list(EventStream(data, "a.json"))
