"""Fields of a spec's objects: known, present, and numbers in their bounds; ``BadInput`` names place and
value.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput
from experiments.hardware import library


def positive(value: Any, name: str, where: str, or_zero: bool = False) -> float:
    """Sizes are whole bytes, everything else is a float."""
    whole = name.endswith("_bytes")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 < value <= sys.float_info.max and not (whole and value < 1):
        return int(value) if whole else float(value)
    if is_number and value == 0 and or_zero:
        return 0
    expected = "a positive finite number" + (" of bytes" if whole else "") + (" or 0" if or_zero else "")
    raise BadInput(f"{value!r:.80} is not usable", where, expected)


def count(row: Mapping[str, Any], name: str, most: int, where: str) -> int:
    value = row.get(name, 1)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    raise BadInput(f"{name} = {value!r:.80}", where, f"an integer from 1 to {most}")


def fields(spec: Any, required: set[str], optional: set[str], where: str) -> Mapping[str, Any]:
    if not isinstance(spec, Mapping):
        raise BadInput(f"{spec!r:.80} is not an object", where, "a JSON object")
    for name in spec:
        if name not in required | optional:
            raise BadInput(f"unknown field {name!r:.80}", where, library.nearest(name, required | optional))
    for name in sorted(required - set(spec)):
        raise BadInput(f"field {name!r} is missing", where, "fields " + ", ".join(sorted(required)))
    return spec
