"""``device-cloud``: a model's operators with their times on a device and in a cloud, and the link (JSON).

``uplink`` and ``downlink`` (bytes/s) hold for the whole ``duration`` (s, 1 unless told), or ``bandwidth``
has rows of time, up and down. An operator has ``name``, ``cloud`` (s), ``bytes`` (of its output), ``inputs``
(names before it; the one before it unless told), ``stays`` and one of ``device`` (s), ``matmul`` [m, n, k] or
``convolution`` [inputs, outputs, kernel, height, width]; with shapes, ``backends`` give each library's
``rate`` (elementary operations a second) and ``scheduling`` (s an operator).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiments.core import jsonio, knobs
from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads.split_task import (
    Backend,
    ConvolutionShape,
    LinkState,
    MatmulShape,
    Shape,
    SplitOperator,
    SplitTask,
)

MOST_OPERATORS, MOST_LINKS, MOST_BACKENDS = 2000, 10_000, 32
LONGEST, LARGEST, MOST_SIZE = 1e9, 1e15, 10**6


@dataclass(frozen=True)
class TaskFields:
    """The plain fields of a task."""

    round_trip: float = knob(0.0, "of a part in the cloud", low=0.0, high=LONGEST, unit="s")
    input_bytes: float = knob(0.0, "of the input, on the device", low=0.0, high=LARGEST, unit="bytes")
    output_bytes: float = knob(0.0, "of the result", low=0.0, high=LARGEST, unit="bytes")
    duration: float = knob(1.0, "time that is looked at", low=1e-9, high=LONGEST, unit="s")
    uplink: float | None = knob(None, "bandwidth to the cloud", low=1e-9, high=LARGEST, unit="bytes/s")
    downlink: float | None = knob(None, "bandwidth from the cloud", low=1e-9, high=LARGEST, unit="bytes/s")


@dataclass(frozen=True)
class OperatorFields:
    """The plain fields of an operator."""

    name: str = knob("", "what it is called")
    device: float | None = knob(None, "on the device", low=0.0, high=LONGEST, unit="s")
    cloud: float | None = knob(None, "in the cloud", low=0.0, high=LONGEST, unit="s")
    bytes: float = knob(0.0, "of its output", low=0.0, high=LARGEST, unit="bytes")
    stays: bool = knob(False, "never in the cloud")


@dataclass(frozen=True)
class BackendFields:
    """What a library of the device reaches."""

    rate: float | None = knob(None, "elementary operations a second", low=1e-3, high=1e18, unit="1/s")
    scheduling: float = knob(0.0, "of each operator", low=0.0, high=1e3, unit="s")


PLAIN_TASK = frozenset(TaskFields.__dataclass_fields__)
PLAIN_OPERATOR = frozenset(OperatorFields.__dataclass_fields__)
SHAPES = {"matmul": (3, MatmulShape), "convolution": (5, ConvolutionShape)}


def _recognizes(head: bytes, name: str) -> bool:
    has_link = b'"uplink"' in head or b'"bandwidth"' in head
    return head.lstrip().startswith(b"{") and b'"operators"' in head and has_link


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    document = _object(jsonio.loads(data, name), name, PLAIN_TASK | {"operators", "bandwidth", "backends"})
    plain: TaskFields = knobs.load(TaskFields, _only(document, PLAIN_TASK), name)
    rows = _list(document.get("operators"), f"{name}: operators", MOST_OPERATORS)
    task = SplitTask(
        name,
        _operators(rows, name),
        _links(document, plain, name),
        plain.round_trip,
        plain.input_bytes,
        plain.output_bytes,
        plain.duration,
        _backends(document.get("backends", {}), f"{name}: backends"),
    )
    return Reading(task)


def _object(value: Any, where: str, allowed: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.60}", where, "an object")
    if unknown := sorted(set(value) - allowed):
        raise BadInput(f"unknown field {unknown[0]!r:.60}", where, ", ".join(sorted(allowed)))
    return value


def _only(row: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key in names}


def _list(value: Any, where: str, most: int) -> list[Any]:
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise BadInput(f"{value!r:.60}", where, f"a list of 1 to {most}")
    return value


def _operators(rows: list[Any], name: str) -> tuple[SplitOperator, ...]:
    places: dict[str, int] = {}
    found = []
    for place, row in enumerate(rows):
        where = f"{name}: operators[{place}]"
        row = _object(row, where, PLAIN_OPERATOR | {"inputs", *SHAPES})
        plain: OperatorFields = knobs.load(OperatorFields, _only(row, PLAIN_OPERATOR), where)
        if not plain.name or plain.name in places:
            what = "is missing" if not plain.name else f"{plain.name!r:.60} is there twice"
            raise BadInput(what, f"{where}.name", "a name of its own")
        if plain.cloud is None and not plain.stays:
            raise BadInput("is missing", f"{where}.cloud", "seconds in the cloud, or stays")
        shape = _shape(row, where)
        if (plain.device is None) == (shape is None):
            raise BadInput("has not one cost on the device", where, "device, matmul or convolution")
        inputs = _inputs(row.get("inputs"), places, place, f"{where}.inputs")
        found.append(
            SplitOperator(
                plain.name, plain.cloud or 0.0, plain.bytes, inputs, plain.device, shape, plain.stays
            )
        )
        places[plain.name] = place
    return tuple(found)


def _inputs(value: Any, places: Mapping[str, int], place: int, where: str) -> tuple[int, ...]:
    if value is None:
        return (place - 1,)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"{value!r:.60}", where, "names of operators before it; none: the input")
    unknown = [one for one in value if one not in places]
    if unknown:
        raise BadInput(f"{unknown[0]!r:.60} is no operator before it", where, ", ".join([*places][:12]))
    return tuple(dict.fromkeys(places[one] for one in value)) or (-1,)


def _shape(row: Mapping[str, Any], where: str) -> Shape | None:
    given = [kind for kind in SHAPES if kind in row]
    if not given:
        return None
    count, made = SHAPES[given[0]]
    sizes = row[given[0]]
    is_right = isinstance(sizes, list) and len(sizes) == count
    if len(given) > 1 or not is_right or not all(_is_size(one) for one in sizes):
        raise BadInput(f"{sizes!r:.60}", f"{where}.{given[0]}", f"{count} counts from 1 to {MOST_SIZE}")
    shape: Shape = made(*sizes)
    return shape


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_SIZE


def _links(document: Mapping[str, Any], plain: TaskFields, name: str) -> tuple[LinkState, ...]:
    if "bandwidth" not in document:
        if plain.uplink is None or plain.downlink is None:
            raise BadInput("uplink or downlink is missing", name, "both, or bandwidth")
        return (LinkState(0.0, plain.uplink, plain.downlink),)
    where, found = f"{name}: bandwidth", []
    for row in _list(document["bandwidth"], where, MOST_LINKS):
        is_row = isinstance(row, list) and len(row) == 3 and all(_is_positive(one) for one in row[1:])
        if not is_row or not _is_number(row[0]) or row[0] < 0:
            raise BadInput(f"{row!r:.60}", where, "rows of time, bytes/s up, bytes/s down")
        found.append(LinkState(*map(float, row)))
    if any(later.time <= sooner.time for sooner, later in pairwise(found)):
        raise BadInput("times do not ascend", where, "each later than the one before")
    return (LinkState(0.0, found[0].up, found[0].down), *found[1:])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _backends(value: Any, where: str) -> tuple[Backend, ...]:
    if not isinstance(value, dict) or len(value) > MOST_BACKENDS:
        raise BadInput(f"{value!r:.60}", where, f"an object of at most {MOST_BACKENDS} libraries")
    found = []
    for name, row in value.items():
        plain: BackendFields = knobs.load(
            BackendFields,
            dict(_object(row, f"{where}.{name}", frozenset(BackendFields.__dataclass_fields__))),
            where,
        )
        if plain.rate is None:
            raise BadInput("is missing", f"{where}.{name}.rate", "elementary operations a second")
        found.append(Backend(name, plain.rate, plain.scheduling))
    return tuple(found)


READER = Reader(
    "device-cloud",
    "split",
    "operators with times on a device and in a cloud, and the link between them (JSON)",
    _recognizes,
    _read,
)
