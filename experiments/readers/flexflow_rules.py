"""``flexflow-rules``: FlexFlow's JSON of joint algebraic and parallel substitutions (Unity, OSDI'22, released
code).

``{"_t": "RuleCollection", "rule": [{"name", "srcOp", "dstOp", "mappedOutput"}]}``; an operator is ``{"type":
"OP_...", "input": [{"opId", "tsId"}], "para": [{"key": "PM_...", "value"}]}``. Ids are as in TASO's file,
keyed by the pair (opId, tsId); axes count from the outermost, of three: replica, sample, feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads.substitutions import (
    MOST_OPERATORS,
    MOST_RULES,
    Operand,
    Operator,
    Substitution,
    check_substitution,
    collect_substitutions,
)

INT32 = 2**31
MOST_NAME = 80


def _recognizes(head: bytes, name: str) -> bool:
    return head.lstrip()[:1] == b"{" and b'"srcOp"' in head and b'"RuleCollection"' in head[:4096]


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    root = _object(jsonio.loads(data, name), name)
    rules = _list(root, "rule", name, MOST_RULES)
    if not rules:
        raise BadInput("no rules", name, "at least one")
    read = collect_substitutions(
        name, (_rule(rule, f"{name}: rule {index}") for index, rule in enumerate(rules))
    )
    if len({rule.name for rule in read.rules}) < len(read.rules):
        raise BadInput("two rules of one name", name, "a name of its own for each rule")
    return Reading(read)


def _rule(value: Any, where: str) -> Substitution:
    row = _object(value, where)
    name = row.get("name")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MOST_NAME:
        raise BadInput(f"name {name!r:.80}", where, f"up to {MOST_NAME} printable characters")
    source, target = (
        tuple(_operator(entry, f"{where}: {side}") for entry in _list(row, side, where, MOST_OPERATORS))
        for side in ("srcOp", "dstOp")
    )
    pairs = [_object(entry, where) for entry in _list(row, "mappedOutput", where, MOST_OPERATORS)]
    outputs = tuple(
        (
            Operand(_integer(pair, "srcOpId", where), _integer(pair, "srcTsId", where)),
            Operand(_integer(pair, "dstOpId", where), _integer(pair, "dstTsId", where)),
        )
        for pair in pairs
    )
    return check_substitution(Substitution(name, source, target, outputs), where)


def _operator(value: Any, where: str) -> Operator:
    row = _object(value, where)
    kind = _code(row.get("type"), "OP_", where)
    inputs = [_object(entry, where) for entry in _list(row, "input", where, MOST_OPERATORS)]
    parameters = [_object(entry, where) for entry in _list(row, "para", where, MOST_OPERATORS)]
    return Operator(
        kind,
        tuple(Operand(_integer(entry, "opId", where), _integer(entry, "tsId", where)) for entry in inputs),
        tuple(
            (_code(entry.get("key"), "PM_", where), _integer(entry, "value", where)) for entry in parameters
        ),
    )


def _code(value: Any, prefix: str, where: str) -> str:
    """``OP_EW_ADD`` -> ``ew_add``."""
    short = value.removeprefix(prefix) if isinstance(value, str) and value.startswith(prefix) else ""
    if not short.replace("_", "").isalnum() or not short.isascii() or len(short) > MOST_NAME:
        raise BadInput(f"{value!r:.80}", where, f"a name with {prefix}")
    return str(short.lower())


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.80} is no object", where, "an object")
    return value


def _list(row: Mapping[str, Any], key: str, where: str, most: int) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise BadInput(f"{key!r} is no list of at most {most}", where, f"a list {key!r}")
    return value


def _integer(row: Mapping[str, Any], key: str, where: str) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not -INT32 <= value < INT32:
        raise BadInput(f"{key} = {value!r:.80}", where, "a 32-bit integer")
    return value


READER = Reader(
    "flexflow-rules",
    "rules",
    "FlexFlow's joint algebraic and parallel substitutions (JSON)",
    recognizes=_recognizes,
    read=_read,
)
