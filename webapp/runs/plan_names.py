"""A plan in names: ops, tensors and layers as they are called, their numbers on hover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What the fields of a move, and of a parallel plan, number (``experiment.names`` of the families).
NAMED = {
    **{"at": "ops", "until": "ops", "ops": "ops", "tensor": "tensors", "keep": "tensors"},
    **{"recompute": "layers", "checkpoints": "layers", "saved": "layers"},
}
#: Of several ops or tensors so many are named, the rest counted.
MOST = 3


class Named(str):
    """A name that stands for a ``number``, or words for a ``value`` that leaves in its place in a file."""

    number: str = ""
    value: Any = None


def add_meaning(name: str, number: str, value: Any = None) -> Named:
    """The name with what it stands for."""
    found = Named(name)
    found.number, found.value = number, value
    return found


def in_names(row: Mapping[str, Any], named: Mapping[str, Mapping[str, str]]) -> Mapping[str, Any]:
    """The row with the names of what it numbers; as it is where the run's outcome tells none."""
    if not named:
        return row
    return {field: _in_name(value, named.get(NAMED.get(field, ""), {})) for field, value in row.items()}


def _in_name(value: Any, names: Mapping[str, str]) -> Any:
    numbers = value if isinstance(value, list) else [value]
    plain = all(isinstance(one, int) and not isinstance(one, bool) for one in numbers)
    if not names or not numbers or not plain:
        return value
    known = [names.get(str(one), str(one)) for one in numbers[:MOST]]
    more = f" and {len(numbers) - MOST} more" if len(numbers) > MOST else ""
    return add_meaning(", ".join(known) + more, ", ".join(map(str, numbers[:100])))
