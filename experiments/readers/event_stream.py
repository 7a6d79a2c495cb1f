"""The events of a Chrome trace one after another, so that a file of millions is never a tree in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput

MOST_EVENTS = 4_000_000
#: Bytes decoded at once; as many again where a value is longer than what is at hand.
BLOCK = 1 << 20
#: Below so many brackets nothing is nested too deeply.
SHALLOW = jsonio.MAX_DEPTH // 2
_SPACE = " \t\n\r"


class EventStream:
    """The ``traceEvents`` of an object, or a bare list; ``header`` gets the object's other entries."""

    def __init__(self, data: bytes, name: str) -> None:
        self.header: dict[str, Any] = {}
        self._text = _Text(data, name)
        self._name = name

    def __iter__(self) -> Iterator[Any]:
        """Return one event after another. ``BadInput`` where the file is not what it should be."""
        opening = self._text.next_sign("[{")
        if opening == "[":
            yield from self._events()
        else:
            yield from self._object()
        self._text.refuse_more()

    def _object(self) -> Iterator[Any]:
        found = False
        sign = self._text.sign()
        while sign != "}":
            name = self._text.value()
            if not isinstance(name, str) or name in self.header or (name == "traceEvents" and found):
                raise BadInput(f"not valid JSON: key {name!r:.80}", self._name, "a JSON document")
            self._text.next_sign(":")
            if name == "traceEvents":
                found = True
                self._open_list()
                yield from self._events()
            else:
                self.header[name] = self._text.value()
            sign = self._text.next_sign(",}")
        if not found:
            raise BadInput("no traceEvents", self._name, "a trace exported by torch.profiler")

    def _open_list(self) -> None:
        if self._text.sign() != "[":
            raise BadInput("traceEvents is not a list of events", self._name, f"at most {MOST_EVENTS}")
        self._text.next_sign("[")

    def _events(self) -> Iterator[Any]:
        if self._text.sign() == "]":
            self._text.next_sign("]")
            return
        for count in range(MOST_EVENTS):
            yield self._text.value(f"{self._name}: event {count}")
            if self._text.next_sign(",]") == "]":
                return
        raise BadInput(f"more than {MOST_EVENTS} events", self._name, f"a list of at most {MOST_EVENTS}")


class _Text:
    """The file's text from a position on, decoded block by block."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = memoryview(data), name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = jsonio.decoder()
        self._taken = 0
        self._held = ""
        self._at = 0

    def sign(self) -> str:
        """The next character that is no space; ``BadInput`` at the end."""
        while True:
            while self._at < len(self._held) and self._held[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                raise self._complain("it ends too early")

    def next_sign(self, allowed: str) -> str:
        found = self.sign()
        if found not in allowed:
            raise self._complain(f"{found!r} where one of {allowed!r} is expected")
        self._at += 1
        return found

    def value(self, where: str = "") -> Any:
        """The value that begins here. What is cut off by the end of a block is tried again with more."""
        self.sign()
        while True:
            try:
                value, end = self._json.raw_decode(self._held, self._at)
            except RecursionError:
                raise BadInput("nested too deeply", where or self._name, "a real trace") from None
            except ValueError as error:
                if self._more():
                    continue
                raise self._complain(
                    error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                ) from None
            if end < len(self._held) or not self._more():
                break
        self._check(value, end, where or self._name)
        self._at = end
        return value

    def refuse_more(self) -> None:
        while self._more():
            pass
        if self._held[self._at :].strip(_SPACE):
            raise self._complain("something follows the last value")

    def _check(self, value: Any, end: int, where: str) -> None:
        brackets = self._held.count("{", self._at, end) + self._held.count("[", self._at, end)
        is_escaped = self._held.find("\\u", self._at, end) >= 0
        if is_escaped or brackets > SHALLOW:
            jsonio.refuse_odd(value, is_escaped, where)

    def _more(self) -> bool:
        """Add a block, as long as what is held; whether there was one."""
        size = max(BLOCK, len(self._held) - self._at)
        block = self._data[self._taken : self._taken + size]
        if not block:
            return False
        self._taken += len(block)
        try:
            text = self._decoder.decode(block, final=self._taken == len(self._data))
        except UnicodeDecodeError:
            what = f"a byte before offset {self._taken} is not UTF-8"
            raise BadInput(what, self._name, "a JSON document in UTF-8") from None
        self._held, self._at = self._held[self._at :] + text, 0
        return True

    def _complain(self, what: str) -> BadInput:
        place = f"near byte {self._taken - len(self._held) + self._at}"
        return BadInput(f"not valid JSON {place}: {what}", self._name, "a JSON document")
