"""``operators``: a list of tensor operators by their sizes, a line for each.

``NAME KIND SIZE=VALUE ...`` with sizes as integers joined by ``x``; empty lines and lines that start with
``#`` say nothing. Kinds and their sizes (those in brackets may be left out)::

    M4 matmul m=65536 n=1024 k=1024 [batch=16x12]
    C0 conv x=128x128x28x28 filters=128 kernel=3x3 [stride=1x1 padding=1x1 dilation=1x1 groups=1]
    P2 pool x=128x42x83x83 kernel=3x3 [stride=2x2 padding=1x1 dilation=1x1]
    E0 elementwise shape=128x1008x42x42 [operands=2]
    R0 reduce shape=65536x1024 over=1
    S0 softmax shape=128x1000 over=1

``x`` and ``shape`` are whole tensors (batch and channels first), ``over`` the dimensions reduced,
``operands`` how many tensors as large are read. Every kind takes ``dtype=`` (float32 where it is left out).
``options.extra`` names a table of times that other systems took for them (``readers.operator_times``).
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from experiments.core.errors import BadInput
from experiments.core.options import DTYPES, WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.operator_times import operator_times
from experiments.workloads.operator_list import OPERATOR_KINDS, SINGLE, Operator, OperatorList

MOST_OPERATORS, LARGEST, MOST_POINTS = 20_000, 2**31, 2**50
_LINE = re.compile(rb"^\S+ +(" + "|".join(OPERATOR_KINDS).encode() + rb") +[a-z]+=[0-9]")
_SIZES = re.compile(r"[0-9]{1,10}(x[0-9]{1,10}){0,7}")
ZERO_ALLOWED = ("padding", "over")


def _recognizes(head: bytes, name: str) -> bool:
    lines = (line for line in head.splitlines() if line.strip() and not line.startswith(b"#"))
    return bool(_LINE.match(next(lines, b"")))


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8", name, "text") from None
    found: dict[str, Operator] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{name}: line {number}"
        operator = _operator(line.split(), where, options)
        if operator.name in found:
            raise BadInput(f"operator {operator.name!r:.80} appears twice", where, "each name once")
        found[operator.name] = operator
        if len(found) > MOST_OPERATORS:
            raise BadInput(f"more than {MOST_OPERATORS} operators", where, "fewer")
    if not found:
        raise BadInput("no operators", name, "a line for each: NAME KIND SIZE=VALUE ...")
    if options.extra is None:
        return Reading(OperatorList(name, tuple(found.values())))
    recorded = operator_times(options.extra, found)
    assumed = f"times in {Path(options.extra).name} are milliseconds of a kernel"
    return Reading(OperatorList(name, tuple(found.values()), recorded), (assumed,))


def _operator(words: list[str], where: str, options: WorkloadOptions) -> Operator:
    if len(words) < 2 or words[1] not in OPERATOR_KINDS:
        kinds = ", ".join(OPERATOR_KINDS)
        raise BadInput(
            f"{' '.join(words)!r:.80} names no kind of operator", where, f"NAME KIND ..., of {kinds}"
        )
    name, kind = words[:2]
    if not name.isprintable() or len(name) > 80:
        raise BadInput(f"{name!r:.80} is not a name", where, "up to 80 printable characters")
    needed, optional = OPERATOR_KINDS[kind]
    dtype, sizes = options.dtype or "float32", {}
    for word in words[2:]:
        key, _, value = word.partition("=")
        if key == "dtype" and value in DTYPES:
            dtype = value
        elif key in sizes or key not in (*needed, *optional):
            raise BadInput(f"{word!r:.80}", where, f"each once: {', '.join((*needed, *optional, 'dtype'))}")
        else:
            sizes[key] = _numbers(key, value, where)
    if missing := [key for key in needed if key not in sizes]:
        raise BadInput(f"{kind} without {missing[0]}", where, ", ".join(needed))
    return _check(Operator(name, kind, sizes, dtype), where)


def _numbers(key: str, value: str, where: str) -> tuple[int, ...]:
    lowest = 0 if key in ZERO_ALLOWED else 1
    if not _SIZES.fullmatch(value) or (key in SINGLE and "x" in value):
        expected = "one integer" if key in SINGLE else "up to eight integers joined by x"
        raise BadInput(f"{key}={value!r:.80}", where, expected)
    numbers = tuple(int(part) for part in value.split("x"))
    if any(not lowest <= number <= LARGEST for number in numbers):
        raise BadInput(f"{key}={value:.80}", where, f"{lowest} to {LARGEST}")
    return numbers


def _check(operator: Operator, where: str) -> Operator:
    """The operator, once its sizes agree with one another."""
    sizes = operator.sizes
    if (
        math.prod(
            math.prod(size) for key, size in sizes.items() if key in ("shape", "x", "batch", "m", "n", "k")
        )
        > MOST_POINTS
    ):
        raise BadInput(f"{operator.name:.80} has more than {MOST_POINTS} points", where, "fewer")
    if "over" in sizes and any(axis >= len(sizes["shape"]) for axis in sizes["over"]):
        raise BadInput(f"over={'x'.join(map(str, sizes['over']))}", where, f"dimensions of {sizes['shape']}")
    if "kernel" in sizes:
        _check_window(operator, where)
    return operator


def _check_window(operator: Operator, where: str) -> None:
    sizes, image = operator.sizes, operator.sizes["x"][2:]
    if not 1 <= len(image) <= 3:
        raise BadInput(
            f"x has {len(sizes['x'])} dimensions", where, "batch, channels and one to three of an image"
        )
    for key in ("kernel", "stride", "padding", "dilation"):
        if key in sizes and len(sizes[key]) != len(image):
            raise BadInput(f"{key} has {len(sizes[key])} numbers", where, f"{len(image)}, as the image")
    ones = (1,) * len(image)
    padding, dilation = sizes.get("padding", (0,) * len(image)), sizes.get("dilation", ones)
    for length, tap, pad, spread in zip(image, sizes["kernel"], padding, dilation, strict=True):
        if length + 2 * pad < spread * (tap - 1) + 1:
            raise BadInput(
                f"a window of {spread * (tap - 1) + 1} over {length + 2 * pad}", where, "one that fits"
            )
    groups = operator.one("groups")
    if operator.kind == "conv" and (sizes["x"][1] % groups or sizes["filters"][0] % groups):
        raise BadInput(f"groups={groups}", where, "a divisor of the channels and of the filters")


READER = Reader("operators", "operators", "a list of tensor operators by their sizes", _recognizes, _read)
