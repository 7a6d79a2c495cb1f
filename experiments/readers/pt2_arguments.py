"""Arguments of an exported program's nodes: numbers, sizes, tensors made before, and lists of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.core.errors import BadInput
from experiments.readers.pt2_fields import only_entry
from experiments.readers.pt2_weights import DTYPES
from experiments.workloads.program import Device, DType, MemoryFormat, Stored, Value

MOST_ENTRIES = 4096
LARGEST = (1 << 63) - 1
MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
#: What was made so far.
Names = Mapping[str, Value | Stored]


def argument_of(names: Names, entry: Any, where: str) -> Any:
    kind, body = only_entry(entry, where)
    if kind not in _ARGUMENTS:
        raise BadInput(f"an argument of kind {kind!r:.40}", where, "tensors, numbers and lists of them")
    return _ARGUMENTS[kind](names, body, where)


def read_name(names: Names, body: Any, where: str) -> Value | Stored:
    name = body.get("name", body.get("as_name")) if isinstance(body, dict) else None
    if not isinstance(name, str) or name not in names:
        raise BadInput(f"{name!r:.80} is not made before", where, "a value that exists")
    return names[name]


def integer(names: Names, body: Any, where: str) -> int:
    if not isinstance(body, int) or isinstance(body, bool) or abs(body) > LARGEST:
        raise BadInput(f"{body!r:.80} is no whole number", where, f"one from {-LARGEST} to {LARGEST}")
    return body


def _real(names: Names, body: Any, where: str) -> float:
    """JSON has no infinity: the archive spells it as a word."""
    if body in ("Infinity", "-Infinity", "NaN"):
        return float(body)
    if not isinstance(body, int | float) or isinstance(body, bool) or abs(body) > 1e300:
        raise BadInput(f"{body!r:.80} is no number", where, "a number")
    return float(body)


def _truth(names: Names, body: Any, where: str) -> bool:
    if not isinstance(body, bool):
        raise BadInput(f"{body!r:.80} is no truth value", where, "true or false")
    return body


def _word(names: Names, body: Any, where: str) -> str:
    if not isinstance(body, str) or len(body) > 200:
        raise BadInput(f"{body!r:.80} is no word", where, "a short string")
    return body


def _choice(table: Mapping[int, str], make: Callable[[str], Any]) -> Callable[[Names, Any, str], Any]:
    def take(names: Names, body: Any, where: str) -> Any:
        if not isinstance(body, int) or body not in table:
            raise BadInput(f"{body!r:.40} is no choice", where, "one of " + ", ".join(table.values()))
        return make(table[body])

    return take


def _symbolic(number: Callable[[Names, Any, str], Any], plain: str) -> Callable[[Names, Any, str], Any]:
    """A name of a computed size, or a plain number."""

    def take(names: Names, body: Any, where: str) -> Any:
        kind, inner = only_entry(body, where)
        return number(names, inner, where) if kind == plain else read_name(names, body, where)

    return take


def _each(read: Callable[[Names, Any, str], Any]) -> Callable[[Names, Any, str], list[Any]]:
    def every(names: Names, body: Any, where: str) -> list[Any]:
        if not isinstance(body, list) or len(body) > MOST_ENTRIES:
            raise BadInput(f"{body!r:.80} is no list", where, f"a list of at most {MOST_ENTRIES}")
        return [read(names, item, where) for item in body]

    return every


def _optional(names: Names, body: Any, where: str) -> Any:
    kind, inner = only_entry(body, where)
    return None if kind == "as_none" else read_name(names, inner, where)


def _nothing(names: Names, body: Any, where: str) -> None:
    return None


_sym_int, _sym_float = _symbolic(integer, "as_int"), _symbolic(_real, "as_float")
_sym_bool = _symbolic(_truth, "as_bool")
#: How each kind of argument is read. Graphs, objects, operators and nested lists are not on the list.
_ARGUMENTS: Mapping[str, Callable[[Names, Any, str], Any]] = {
    "as_none": _nothing,
    "as_tensor": read_name,
    "as_tensors": _each(read_name),
    "as_optional_tensor": _optional,
    "as_optional_tensors": _each(_optional),
    "as_int": integer,
    "as_ints": _each(integer),
    "as_float": _real,
    "as_floats": _each(_real),
    "as_bool": _truth,
    "as_bools": _each(_truth),
    "as_string": _word,
    "as_sym_int": _sym_int,
    "as_sym_ints": _each(_sym_int),
    "as_sym_float": _sym_float,
    "as_sym_floats": _each(_sym_float),
    "as_sym_bool": _sym_bool,
    "as_sym_bools": _each(_sym_bool),
    "as_scalar_type": _choice(DTYPES, DType),
    "as_memory_format": _choice(MEMORY_FORMATS, MemoryFormat),
    "as_layout": _nothing,
    "as_device": lambda names, body, where: Device(),
}
