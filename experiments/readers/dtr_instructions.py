"""The instructions of a ``dtr-log``, checked one by one: plain JSON objects with an ``INSTRUCTION`` each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput

MOST_INSTRUCTIONS, MOST_ARGUMENTS, MOST_NAME = 2_000_000, 100_000, 200
MOST_BYTES = 2**40
MOST_NANOSECONDS = 10**15


@dataclass(frozen=True)
class Result:
    """One output of a call: its name, its own bytes, and the argument whose memory it shares; -1: none."""

    name: str
    bytes: int
    alias: int


@dataclass(frozen=True)
class Call:
    """An operator that makes ``results`` of ``arguments`` in ``nanoseconds``."""

    operator: str
    arguments: tuple[str, ...]
    nanoseconds: int
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Mutate:
    """An operator that changes the arguments at the places ``changed``."""

    operator: str
    arguments: tuple[str, ...]
    nanoseconds: int
    changed: tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """A tensor that was there before: a parameter, an input, a statistic."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Copy:
    """Another name for ``source``. With ``over`` it meant another tensor before, which it lets go of."""

    name: str
    source: str
    over: bool


@dataclass(frozen=True)
class Release:
    """The name is of no use any more."""

    name: str


@dataclass(frozen=True)
class Annotate:
    """A remark: ``START`` begins the recorded step, ``BACKWARD`` its backward pass."""

    text: str


Instruction = Call | Mutate | Constant | Copy | Release | Annotate


def instructions(data: bytes, name: str) -> Iterator[tuple[str, Instruction]]:
    """Yield the place and the instruction of each line that has one, with the lines that belong to it."""
    lines = _Lines(data, name)
    for row in lines:
        yield lines.place, _instruction(row, lines)


class _Lines:
    """The objects of a log, one a line; blank lines are passed over."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name, self.place = name, name
        self._rows = self._parse(data)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._rows

    def following(self, word: str, tensor: str) -> dict[str, Any]:
        """The next object, which must be instruction ``word`` about ``tensor``."""
        row = next(self._rows, None)
        if row is None or row.get("INSTRUCTION") != word or row.get("NAME") != tensor:
            found = "the end of the file" if row is None else f"{row.get('INSTRUCTION')!r:.40}"
            raise BadInput(f"{found} where {tensor} needs its {word}", self.place, f"{word} of {tensor}")
        return row

    def _parse(self, data: bytes) -> Iterator[dict[str, Any]]:
        count = 0
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            self.place = f"{self.name}: line {number}"
            count += 1
            if count > MOST_INSTRUCTIONS:
                raise BadInput(f"more than {MOST_INSTRUCTIONS} instructions", self.place, "a shorter log")
            row = jsonio.loads(line, self.place)
            if not isinstance(row, dict):
                raise BadInput(f"{row!r:.80} is no instruction", self.place, "a JSON object")
            yield row


def _instruction(row: dict[str, Any], lines: _Lines) -> Instruction:
    word, place = row.get("INSTRUCTION"), lines.place
    if word == "CALL":
        return _call(row, lines)
    if word == "MUTATE":
        arguments = _names(row, "ARGS", place)
        changed = _places(row, len(arguments), place)
        return Mutate(
            _text(row, "NAME", place), arguments, _whole(row, "TIME", MOST_NANOSECONDS, place), changed
        )
    if word == "CONSTANT":
        name = _text(row, "NAME", place)
        return Constant(name, _whole(lines.following("MEMORY", name), "MEMORY", MOST_BYTES, lines.place))
    if word in ("COPY", "COPY_FROM"):
        return Copy(_text(row, "DST", place), _text(row, "SRC", place), over=word == "COPY_FROM")
    if word == "RELEASE":
        return Release(_text(row, "NAME", place))
    if word == "ANNOTATE":
        return Annotate(_text(row, "ANNOTATION", place))
    expected = "CALL, MUTATE, CONSTANT, COPY, COPY_FROM, RELEASE or ANNOTATE"
    raise BadInput(f"instruction {word!r:.80}", place, expected)


def _call(row: dict[str, Any], lines: _Lines) -> Call:
    """The call, and for each of its results the MEMORY and the ALIAS that follow it."""
    place = lines.place
    operator, arguments = _text(row, "NAME", place), _names(row, "ARGS", place)
    nanoseconds = _whole(row, "TIME", MOST_NANOSECONDS, place)
    results = []
    for name in _names(row, "RESULT", place):
        size = _whole(lines.following("MEMORY", name), "MEMORY", MOST_BYTES, lines.place)
        shares = lines.following("ALIAS", name)
        alias = _whole(shares, "ALIAS", len(arguments) - 1, lines.place, low=-1)
        results.append(Result(name, size, alias))
    if not results:
        raise BadInput(f"{operator} has no result", place, "a CALL with at least one RESULT")
    return Call(operator, arguments, nanoseconds, tuple(results))


def _text(row: dict[str, Any], field: str, place: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME or not value.isprintable():
        raise BadInput(f"{field} = {value!r:.80}", place, f"a text of 1 to {MOST_NAME} characters")
    return value


def _names(row: dict[str, Any], field: str, place: str) -> tuple[str, ...]:
    values = row.get(field)
    if not isinstance(values, list) or len(values) > MOST_ARGUMENTS:
        raise BadInput(f"{field} is {type(values).__name__}", place, f"a list of at most {MOST_ARGUMENTS}")
    return tuple(_text({field: value}, field, place) for value in values)


def _places(row: dict[str, Any], arguments: int, place: str) -> tuple[int, ...]:
    values = row.get("MUTATE")
    if not isinstance(values, list) or not 0 < len(values) <= MOST_ARGUMENTS:
        raise BadInput(f"MUTATE = {values!r:.80}", place, "a list of places among ARGS")
    found = tuple(_whole({"MUTATE": value}, "MUTATE", arguments - 1, place) for value in values)
    if len(set(found)) < len(found):
        raise BadInput(f"MUTATE = {values!r:.80}", place, "each place once")
    return found


def _whole(row: dict[str, Any], field: str, high: int, place: str, low: int = 0) -> int:
    """A whole number; the logs write it as a text of digits."""
    value = row.get(field)
    if (
        isinstance(value, str)
        and len(value) <= 20
        and value.removeprefix("-").isdecimal()
        and value.isascii()
    ):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadInput(f"{field} = {value!r:.80}", place, f"a whole number from {low} to {high}")
    return value
