"""What the numbers of a plan stand for: the ops and tensors that its moves name, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.core.units import human
from experiments.memory.interface import MemoryPlan
from experiments.workloads.step import KINDS, Step

#: Fields of moves that hold ops, and those that hold tensors: one, or several.
OPS, TENSORS = ("at", "until", "ops"), ("tensor", "keep")


def names_of(step: Step, plan: MemoryPlan) -> dict[str, dict[str, str]]:
    """Return names by number: of ops with their module, of tensors with kind and size."""
    moves = plan.to_json()["moves"]
    ops = sorted({op for move in moves for op in _numbers(move, OPS) if 0 <= op < len(step.ops)})
    tensors = sorted({t for move in moves for t in _numbers(move, TENSORS) if 0 <= t < len(step.tensors)})
    return {
        "ops": {str(op): _op(step, op) for op in ops},
        "tensors": {str(tensor): _tensor(step, tensor) for tensor in tensors},
    }


def _numbers(move: dict[str, Any], fields: tuple[str, ...]) -> Iterator[int]:
    for field in fields:
        value = move.get(field)
        found = value if isinstance(value, list) else [value]
        yield from (one for one in found if isinstance(one, int) and not isinstance(one, bool))


def _op(step: Step, op: int) -> str:
    name, module = step.ops.name[op], step.ops.module[op]
    return f"{name} of {module}" if module else name


def _tensor(step: Step, tensor: int) -> str:
    kind = KINDS[step.tensors.kind[tensor]].replace("_", " ")
    return f"{step.tensors.name[tensor]} ({kind}, {human(int(step.tensors.bytes[tensor]), 'bytes')})"
