"""One line of a TVM tuning log as a record: whose it is, the task, the configuration, and the
time or error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.workloads.tuning_log import Value

#: TVM numbers its errors from 0 (none) to 8 (unknown).
LAST_ERROR = 8
MOST_KNOBS = 512
MOST_REPEATS = 10_000
#: Integers of one split, ids of one reorder.
MOST_LENGTHS = 256
MOST_SECONDS = 1e8
AUTOTVM_KINDS = ("sp", "re", "an", "ot")
#: Steps of Ansor by how many numbers and names follow the kind at least.
ANSOR_STEPS = {
    "AN": 3, "FU": 2, "PR": 3, "RE": 2, "SP": 5, "FSP": 4, "FFSP": 5, "SA": 4, "CA": 3, "CI": 1, "CR": 1,
    "CHR": 3, "CHW": 2, "RF": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One measured schedule of a task.

    ``task`` tells tasks apart, ``shown`` is what people read; ``seconds`` is NaN where ``error`` is not 0.
    """

    tuner: str
    task: str
    shown: str
    operator: str
    target: str
    config: Mapping[str, Value]
    seconds: float
    error: int
    spent: float
    flops: float | None


def record_of(row: Any, place: str) -> Record:
    """A parsed line; ``BadInput`` names ``place`` and what is wrong there."""
    if not isinstance(row, dict):
        raise BadInput("is no JSON object", place, 'a record {"i" or "input": ..., "r" or "result": ...}')
    given = _list(row.get("i", row.get("input")), f"{place}: input", 1)
    seconds, error, spent = _result(row.get("r", row.get("result")), f"{place}: result")
    if isinstance(given[0], list):
        task, shown, operator, target, config = _ansor(given, place)
        return Record("ansor", task, shown, operator, target, config, seconds, error, spent, None)
    given = _list(given, f"{place}: input", 4)
    target, operator = _text(given[0], f"{place}: target"), _text(given[1], f"{place}: task name")
    config = _autotvm_config(row.get("config") or (given[5] if len(given) > 5 else None), f"{place}: config")
    arguments = _list(given[2], f"{place}: arguments", 0)
    task = jsonio.canonical([target, operator, arguments, given[3]])
    shown = f"{operator} {' '.join(_shapes(arguments)) or jsonio.canonical(arguments)[:80]}".strip()
    flops = flops_of(operator, arguments)
    return Record("autotvm", task, shown, operator, target, config, seconds, error, spent, flops)


def _list(value: Any, place: str, least: int) -> list[Any]:
    if not isinstance(value, list) or len(value) < least:
        raise BadInput(f"{value!r:.60}", place, f"a list of at least {least} entries" if least else "a list")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value or len(value) > 2000:
        raise BadInput(f"{value!r:.60}", place, "a name")
    return value


def _number(value: Any, place: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadInput(f"{value!r:.60}", place, f"a number from {low:g} to {high:g}")
    return float(value)


def _result(value: Any, place: str) -> tuple[float, int, float]:
    """``[[seconds of each repeat], error number, seconds of the whole trial, time stamp]``."""
    row = _list(value, place, 3)
    error = row[1]
    if isinstance(error, bool) or not isinstance(error, int) or not 0 <= error <= LAST_ERROR:
        raise BadInput(f"error number {error!r:.40}", place, f"an integer from 0 to {LAST_ERROR}")
    spent = _number(row[2], f"{place}: seconds of the trial", 0.0, 1e12)
    if error:
        return math.nan, error, spent
    repeats = _list(row[0], f"{place}: times", 1)
    if len(repeats) > MOST_REPEATS:
        raise BadInput(f"{len(repeats)} repeats", place, f"at most {MOST_REPEATS}")
    times = [_number(entry, f"{place}: time", 1e-12, MOST_SECONDS) for entry in repeats]
    return math.fsum(times) / len(times), 0, spent


def _autotvm_config(value: Any, place: str) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.60}", place, "an object with the knobs in e or entity")
    config: dict[str, Value] = {}
    entries = _list(value.get("e", value.get("entity")), f"{place}: entity", 0)
    if len(entries) > MOST_KNOBS:
        raise BadInput(f"{len(entries)} knobs", place, f"at most {MOST_KNOBS}")
    template = value.get("t")
    if isinstance(template, str) and template:
        config["template"] = template
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 3 or entry[1] not in AUTOTVM_KINDS:
            raise BadInput(f"{entry!r:.60}", place, "[name, sp | re | an | ot, value]")
        name = _text(entry[0], f"{place}: knob")
        if name in config:
            raise BadInput(f"knob {name!r} appears twice", place, "each knob once")
        config[name] = _value(entry[2], f"{place}: knob {name}")
    return config


def _value(value: Any, place: str) -> Value:
    if isinstance(value, list) and len(value) <= MOST_LENGTHS and all(_is_part(part) for part in value):
        return tuple(value)
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 200):
        return value
    raise BadInput(f"{value!r:.60}", place, f"a number, a name or up to {MOST_LENGTHS} of them")


def _is_part(part: Any) -> bool:
    is_number = isinstance(part, int) and not isinstance(part, bool) and abs(part) < 2**62
    return is_number or (isinstance(part, str) and len(part) <= 200)


def _ansor(given: list[Any], place: str) -> tuple[str, str, str, str, dict[str, Value]]:
    """``[[workload key, target, ...], [[], steps]]``."""
    task = _list(given[0], f"{place}: task", 2)
    key, target = _text(task[0], f"{place}: workload key"), _text(task[1], f"{place}: target")
    state = _list(given[1] if len(given) > 1 else None, f"{place}: state", 2)
    steps = _list(state[1], f"{place}: steps", 0)
    if len(steps) > MOST_KNOBS:
        raise BadInput(f"{len(steps)} steps", place, f"at most {MOST_KNOBS}")
    parts = jsonio.loads(key, f"{place}: workload key") if key.startswith("[") else [key]
    operator = str(parts[0]) if isinstance(parts, list) and parts else key
    shown = " ".join(str(part) for part in parts)[:120] if isinstance(parts, list) else key[:120]
    return jsonio.canonical([key, target]), shown, operator, target, ansor_config(steps, place)


def ansor_config(steps: list[Any], place: str) -> dict[str, Value]:
    """The steps as knobs: the sketch, and what can differ between two programs of one sketch."""
    sketch: list[str] = []
    count: Counter[str] = Counter()
    config: dict[str, Value] = {"sketch": ""}
    for number, step in enumerate(steps):
        where = f"{place}: step {number}"
        kind = step[0] if isinstance(step, list) and step else None
        if not isinstance(kind, str) or kind not in ANSOR_STEPS or len(step) <= ANSOR_STEPS[kind]:
            raise BadInput(f"{step!r:.60}", where, "one of " + ", ".join(ANSOR_STEPS) + " with its numbers")
        count[kind] += 1
        knob = f"{kind} {count[kind]}"
        if kind == "SP":
            config[knob] = _lengths(step[4], where)
            sketch.append(f"SP {step[1]} {step[2]} {step[3]}")
        elif kind == "PR":
            config[knob] = _pragma(step[3], where)
            sketch.append(f"PR {step[1]}")
        else:
            config[knob] = jsonio.canonical(step[1:])[:200]
            # Which axes are fused and annotated depends on the lengths drawn: no other sketch.
            sketch += [] if kind in ("FU", "AN") else [f"{kind} {step[1]}"]
    config["sketch"] = " ".join(sketch)
    return config


def _lengths(value: Any, where: str) -> Value:
    lengths = _list(value, f"{where}: lengths", 0)
    if len(lengths) > MOST_LENGTHS or any(type(length) is not int or length < 1 for length in lengths):
        raise BadInput(f"{value!r:.60}", f"{where}: lengths", "positive integers")
    return tuple(lengths)


def _pragma(value: Any, where: str) -> Value:
    """``auto_unroll_max_step$64`` is the number 64."""
    name, _, limit = _text(value, f"{where}: pragma").partition("$")
    return int(limit) if limit.isdigit() and len(limit) < 10 else name


def _shapes(arguments: list[Any]) -> list[str]:
    return ["x".join(map(str, shape)) for shape in _tensors(arguments)]


def _tensors(arguments: list[Any]) -> list[list[int]]:
    """The shapes of ``["TENSOR", shape, dtype]`` arguments."""
    found = []
    for entry in arguments:
        if (
            isinstance(entry, list)
            and len(entry) == 3
            and entry[0] == "TENSOR"
            and isinstance(entry[1], list)
        ):
            if not all(type(size) is int and 0 < size < 2**40 for size in entry[1]) or len(entry[1]) > 16:
                continue
            found.append(entry[1])
    return found


def flops_of(operator: str, arguments: list[Any]) -> float | None:
    """FLOPs of one call of a dense or batched product or a plain convolution (NCHW).

    ``None`` of anything else.
    """
    shapes = _tensors(arguments)
    if len(shapes) < 2:
        return None
    data, weight = shapes[0], shapes[1]
    if "dense" in operator and len(data) == len(weight) == 2 and data[1] == weight[1]:
        return 2.0 * data[0] * data[1] * weight[0]
    if "batch_matmul" in operator and len(data) == len(weight) == 3 and data[2] == weight[2]:
        return 2.0 * data[0] * data[1] * data[2] * weight[1]
    return _convolution_flops(arguments, data, weight) if "conv2d" in operator else None


def _convolution_flops(arguments: list[Any], data: list[int], weight: list[int]) -> float | None:
    """``[data, weight, strides, padding, dilation, ...]`` with two or four paddings and one group."""
    lists = [entry for entry in arguments[2:5] if isinstance(entry, list)]
    if len(data) != 4 or len(weight) != 4 or data[1] != weight[1] or len(lists) < 3:
        return None
    if any(type(number) is not int for entry in lists for number in entry) or len(lists[1]) not in (2, 4):
        return None
    strides, padding, dilation = lists
    whole = (
        [2 * side for side in padding]
        if len(padding) == 2
        else [padding[0] + padding[2], padding[1] + padding[3]]
    )
    out = [
        (data[2 + i] + whole[i] - dilation[i] * (weight[2 + i] - 1) - 1) // max(strides[i], 1) + 1
        for i in (0, 1)
    ]
    return 2.0 * data[0] * math.prod(weight) * math.prod(out) if min(out) > 0 else None
