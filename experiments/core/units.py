"""Units: bytes, seconds and FLOPs inside; these names are for the edges where people read and write."""

from __future__ import annotations

import math
from collections.abc import Iterable

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
MICROSECOND, MILLISECOND = 1e-6, 1e-3
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
GFLOP, TFLOP, PFLOP = 1e9, 1e12, 1e15

DTYPE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "tfloat32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}

_BYTE_STEPS = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_SECOND_STEPS = (
    (DAY, "d"),
    (HOUR, "h"),
    (MINUTE, "min"),
    (1.0, "s"),
    (1e-3, "ms"),
    (1e-6, "µs"),
    (1e-9, "ns"),
)
_COUNT_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits and no exponent for everyday sizes."""
    if value == 0:
        return "0"
    if abs(value) >= 10**digits and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _format_scaled(value: float, steps: tuple[tuple[float, str], ...], unit: str) -> str:
    for size, label in steps:
        if abs(value) >= size:
            return f"{significant(value / size)} {label}{unit}"
    return f"{significant(value)} {unit}".rstrip()


def common_scale(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Size and label for a column or an axis: the step of the largest finite value, ``(2**30, "GiB")``."""
    steps = {"bytes": (*_BYTE_STEPS, (1.0, "B")), "s": _SECOND_STEPS}.get(unit, ())
    if unit == "fraction":
        return 0.01, "%"
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return next(((size, label) for size, label in steps if largest >= size), (1.0, unit))


#: Nouns of what is counted, of which there may be one.
COUNTED = frozenset({"requests", "jobs", "tokens", "steps", "ops", "devices", "machines", "runs"})


def human(value: float, unit: str) -> str:
    """Return a figure as people read it: ``human(2**30, "bytes") == "1 GiB"``.

    Of seconds: ``human(0.0021, "s") == "2.1 ms"``; of a ratio ``1.35×``.
    """
    if unit == "bytes":
        return _format_scaled(value, _BYTE_STEPS, "") if abs(value) >= KIB else f"{significant(value)} B"
    if unit == "s":
        return _format_scaled(value, _SECOND_STEPS, "") if value else "0 s"
    if unit in {"FLOP", "FLOP/s", "bytes/s"}:
        return _format_scaled(value, _COUNT_STEPS, unit.replace("bytes", "B"))
    if unit == "fraction":
        return f"{significant(value * 100)} %"
    if unit == "ratio":
        return f"{significant(value)}×"
    if unit == "count":
        return significant(value)
    counted = unit.removesuffix("s") if value == 1 and unit in COUNTED else unit
    return f"{significant(value)} {counted}".rstrip()
