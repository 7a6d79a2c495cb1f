"""A field of many runs as a column: numbers, or codes of the few values that there are; and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

#: So many different values of a field are kept as such, each row with its code of one byte.
FEW = 256
#: Whole numbers up to here are numbers of 8 bytes without loss.
EXACT = 2**53

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: Kind and name of a field.
Key = tuple[str, str]


@dataclass(frozen=True)
class Column:
    """The values of those ``rows`` (ascending) that have one, or of all: numbers, or with ``words`` the codes
    of these values of JSON.
    """

    values: NDArray[Any]
    words: tuple[Any, ...] | None = None
    rows: NDArray[np.uint32] | None = None

    def where(self, size: int, holds: Callable[[Any], bool], numbers: Callable[[Floats], Mask]) -> Mask:
        """The rows of ``size`` whose value is one that ``holds``, or that ``numbers`` finds among numbers."""
        if self.words is None:
            return self._of_all(size, numbers(self.values))
        if all(map(is_exact, self.words)):
            known = numbers(np.array(self.words, np.float64))
        else:
            known = np.fromiter(map(holds, self.words), bool, len(self.words))
        return self._of_all(size, known[self.values])

    def among(self, size: int, words: Set[Any]) -> Mask:
        """The rows of ``size`` that have one of the words; of a column of words."""
        return self.where(size, words.__contains__, lambda values: np.zeros(len(values), bool))

    def _of_all(self, size: int, found: Mask) -> Mask:
        if self.rows is None:
            return found
        whole = np.zeros(size, bool)
        whole[self.rows] = found
        return whole

    def numbers(self, size: int) -> tuple[Floats, Mask]:
        """A number for each row, and whether it has one; of a column of numbers."""
        if self.rows is None:
            return self.values, np.ones(size, bool)
        whole, there = np.zeros(size), np.zeros(size, bool)
        whole[self.rows], there[self.rows] = self.values, True
        return whole, there

    def codes(self, size: int) -> tuple[NDArray[Any], list[Any]]:
        """A code for each row and the values that they stand for, of which there is one less than codes where
        a row has none.
        """
        words: list[Any]
        if self.words is None:
            different, codes = np.unique(self.values, return_inverse=True)
            words = [int(one) if one == int(one) else float(one) for one in different.tolist()]
        else:
            codes, words = self.values, list(self.words)
        if self.rows is None:
            return codes, words
        whole = np.full(size, len(words), np.min_scalar_type(len(words)))
        whole[self.rows] = codes
        return whole, words


@dataclass(frozen=True)
class Block:
    """``size`` runs by their fields; of a field that is not there none has a value."""

    size: int
    columns: Mapping[Key, Column]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_exact(value: Any) -> bool:
    """Whether it is a number that floating point has as it is written."""
    return type(value) in (int, float) and abs(value) <= EXACT


def column_of(values: Sequence[Any], rows: Sequence[int], size: int) -> Column:
    """The column of ``size`` rows of which ``rows`` have these values of JSON."""
    where = None if len(rows) == size else np.array(rows, np.uint32)
    keys = [canonical(value) for value in values]
    words = dict(zip(keys, values, strict=True))
    if len(words) > FEW and all(map(is_exact, values)):
        return Column(np.array(values, np.float64), None, where)
    places = {key: place for place, key in enumerate(words)}
    return Column(np.array([places[key] for key in keys], narrow(len(words))), tuple(words.values()), where)


def numbers_of(values: Sequence[float], rows: Sequence[int], size: int) -> Column:
    """The same of what has numbers only."""
    where = None if len(rows) == size else np.array(rows, np.uint32)
    return Column(np.array(values, np.float64), None, where)


def canonical(value: Any) -> Any:
    """What is equal for two values of JSON that Postgres takes to be equal: 1 and 1.0, but not true."""
    if isinstance(value, str):
        return value
    if type(value) is int or type(value) is float or is_number(value):
        return (0, value)
    return (1, orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def narrow(words: int) -> type[np.unsignedinteger[Any]]:
    """The type of the codes of so many words."""
    return np.uint8 if words <= FEW else np.uint32


def encode(column: Column) -> tuple[bytes | None, bytes, bytes | None]:
    """Words, values and rows as they are stored."""
    words = None if column.words is None else orjson.dumps(column.words)
    return words, column.values.tobytes(), None if column.rows is None else column.rows.tobytes()


def decode(words: bytes | None, values: bytes, rows: bytes | None) -> Column:
    where = None if rows is None else np.frombuffer(rows, np.uint32)
    if words is None:
        return Column(np.frombuffer(values, np.float64), None, where)
    told = tuple(orjson.loads(words))
    return Column(np.frombuffer(values, narrow(len(told))), told, where)
