"""Pickles of plain data: dicts, lists, tuples, texts and numbers, and nothing else.

This is no unpickler with names forbidden: it is a stack machine of its own that knows only the opcodes that
build plain data (``pickletools.genops`` does the decoding), so that there is nothing to import, call or
restore. Any other opcode is refused with its byte position, as are nesting, memo and counts beyond the caps.
Keys of dicts are texts or integers: hashing a deeply nested tuple would exhaust the stack of the interpreter.
"""

from __future__ import annotations

import functools
import pickletools
from collections.abc import Callable, Iterator
from typing import Any

from experiments.core.errors import BadInput

MOST_OPCODES = 50_000_000
MAX_DEPTH = 64
MOST_DIGITS = 40
PLAIN = "plain dicts, lists, texts and numbers"

_MARK = object()
_CONTAINERS = (list, dict, tuple)
_SHORT = (
    "BININT",
    "BININT1",
    "BININT2",
    "FLOAT",
    "BINFLOAT",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def loads(data: bytes, name: str) -> Any:
    """The value that ``data`` pickles, where it is plain data.

    ``BadInput`` names the opcode and its byte where it is more.
    """
    machine = _Machine(name)
    end = 0
    for opcode, argument, position in _opcodes(data, name):
        end = position
        if opcode == "STOP":
            break
        machine.step(opcode, argument, position)
    if end + 1 != len(data):
        raise BadInput(f"{len(data) - end - 1} bytes after the end of the pickle", name, "one pickle")
    return machine.result(end)


def _opcodes(data: bytes, name: str) -> Iterator[tuple[str, Any, int]]:
    count = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            count += 1
            if count > MOST_OPCODES:
                raise BadInput("too many opcodes", f"{name}, byte {position}", f"at most {MOST_OPCODES}")
            yield opcode.name, argument, position or 0
    except (ValueError, IndexError, OverflowError) as error:
        raise BadInput(f"broken pickle: {str(error)[:200]}", name, "a complete pickle") from None


class _Machine:
    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.depth: dict[int, int] = {}
        self.position = 0
        self.actions: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self.stack.append(_MARK),
            "EMPTY_LIST": lambda _: self._push([]),
            "EMPTY_DICT": lambda _: self._push({}),
            "LIST": lambda _: self._list(),
            "TUPLE": lambda _: self._push(self._tuple(self._to_mark())),
            "DICT": lambda _: self._dict(),
            "APPEND": lambda _: self._extend([self._pop()]),
            "APPENDS": lambda _: self._extend(self._to_mark()),
            "SETITEM": lambda _: self._update(list(reversed([self._pop(), self._pop()]))),
            "SETITEMS": lambda _: self._update(self._to_mark()),
            "MEMOIZE": lambda _: self._remember(len(self.memo)),
        }
        push = self.stack.append
        self.actions |= dict.fromkeys(_SHORT, push) | dict.fromkeys(("INT", "LONG", "LONG1"), self._integer)
        self.actions |= {name: functools.partial(self._constant, value) for name, value in _CONSTANTS.items()}
        self.actions |= {name: functools.partial(self._short_tuple, size) for name, size in _TUPLES.items()}
        self.actions |= dict.fromkeys(("PROTO", "FRAME"), lambda _: None)
        self.actions |= dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self._remember)
        self.actions |= dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), self._recall)

    def step(self, opcode: str, argument: Any, position: int) -> None:
        self.position = position
        action = self.actions.get(opcode)
        if action is None:
            raise self._refusal(f"opcode {opcode}")
        action(argument)

    def result(self, position: int) -> Any:
        self.position = position
        value = self._pop()
        if self.stack:
            raise self._refusal("values left over")
        return value

    def _refusal(self, what: str) -> BadInput:
        return BadInput(f"{what} at byte {self.position}", self.name, PLAIN)

    def _integer(self, value: int) -> None:
        if value.bit_length() > 4 * MOST_DIGITS:
            raise self._refusal(f"an integer of {value.bit_length()} bits")
        self.stack.append(value)

    def _constant(self, value: bool | None, _: Any) -> None:
        self.stack.append(value)

    def _short_tuple(self, size: int, _: Any) -> None:
        items = [self._pop() for _ in range(size)]
        self._push(self._tuple(items[::-1]))

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise self._refusal("nothing to take from the stack")
        return self.stack.pop()

    def _to_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while place >= 0 and self.stack[place] is not _MARK:
            place -= 1
        if place < 0:
            raise self._refusal("no mark on the stack")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def _deepen(self, parent: Any, items: list[Any]) -> None:
        """Keep count of how deep ``parent`` is, now that ``items`` are in it."""
        level = 0
        for item in items:
            if type(item) in _CONTAINERS:
                level = max(level, self.depth.get(id(item), 1))
        if level >= MAX_DEPTH:
            raise self._refusal(f"nested more than {MAX_DEPTH} levels deep")
        if level >= self.depth.get(id(parent), 1):
            self.depth[id(parent)] = level + 1

    def _list(self) -> None:
        items = self._to_mark()
        self._deepen(items, items)
        self._push(items)

    def _tuple(self, items: list[Any]) -> tuple[Any, ...]:
        made = tuple(items)
        self._deepen(made, items)
        return made

    def _dict(self) -> None:
        items = self._to_mark()
        self._push({})
        self._update(items)

    def _extend(self, items: list[Any]) -> None:
        target = self._pop()
        if not isinstance(target, list):
            raise self._refusal("an item for what is no list")
        self._deepen(target, items)
        target.extend(items)
        self._push(target)

    def _update(self, items: list[Any]) -> None:
        target = self._pop()
        if not isinstance(target, dict) or len(items) % 2:
            raise self._refusal("an item for what is no dict")
        keys, values = items[::2], items[1::2]
        if not all(isinstance(key, str | int) for key in keys):
            raise self._refusal("a key that is neither text nor integer")
        self._deepen(target, values)
        target.update(zip(keys, values, strict=True))
        self._push(target)

    def _remember(self, index: int) -> None:
        if not self.stack or self.stack[-1] is _MARK:
            raise self._refusal("nothing to remember")
        self.memo[index] = self.stack[-1]

    def _recall(self, index: int) -> None:
        if index not in self.memo:
            raise self._refusal(f"memo {index} is empty")
        self._push(self.memo[index])
