"""The attention cores of a step: what is computed between the product of queries and keys and the product
with values.

A core is found by its softmax: backwards to a product of two activations, forwards to the next one. Fused
attention has no such ops and never stores the core. Ops are known by their names: ATen's (``aten.bmm``) and
those of kernel traces (``BatchMatMul_Forward``).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.memory.interface import Lineage
from experiments.memory.interface.activations import last_forward_op
from experiments.workloads.step import Step

PRODUCTS = ("bmm", "batchmatmul", "aten.matmul", "einsum")
FUSED = ("scaled_dot_product", "flash_attention")
#: Most ops between a softmax and its products: scale, mask, dropout and copies.
REACH = 12


@dataclass(frozen=True)
class Core:
    """One attention: its softmax op, its first op, and the tensors before the product with the values."""

    softmax: int
    first: int
    tensors: tuple[int, ...]


def is_product(step: Step, op: int) -> bool:
    """A product of two activations; products with weights belong to linear layers."""
    name = step.ops.target[op].lower()
    reads = step.inputs[op]
    return any(part in name for part in PRODUCTS) and not step.persistent[reads].any()


def fused_attention(step: Step) -> list[int]:
    """Forward ops that are a whole attention."""
    forward = range(last_forward_op(step) + 1)
    return [op for op in forward if any(part in step.ops.target[op] for part in FUSED)]


def attention_cores(step: Step, lineage: Lineage) -> list[Core]:
    """Return the attentions of a step in forward order."""
    loss = last_forward_op(step)
    found = []
    for op in range(loss + 1):
        name = step.ops.target[op].lower()
        if "softmax" in name and "log_softmax" not in name:
            before, after = _before(step, lineage, op, REACH), _after(step, lineage, op, loss, REACH)
            if before and after:
                found.append(_core(lineage, op, before | after))
    return found


def _core(lineage: Lineage, softmax: int, ops: set[int]) -> Core:
    tensors = dict.fromkeys(tensor for op in sorted(ops) for tensor in lineage.writes[op])
    return Core(softmax, min(ops), tuple(tensors))


def _before(step: Step, lineage: Lineage, op: int, reach: int) -> set[int]:
    """``op`` and the ops that lead to it from a product, that included; empty when there is none within
    reach.
    """
    ops: set[int] = set()
    for tensor in lineage.reads[op] if reach else ():
        for maker in lineage.writers[tensor]:
            if maker >= op or lineage.persistent[tensor]:
                continue
            ops |= {maker} if is_product(step, maker) else _before(step, lineage, maker, reach - 1)
    return ops | {op} if ops else ops


def _after(step: Step, lineage: Lineage, op: int, loss: int, reach: int) -> set[int]:
    """``op`` and the ops that lead from it to a product, that excluded; empty when there is none within
    reach.
    """
    ops: set[int] = set()
    found = False
    for tensor in lineage.writes[op] if reach else ():
        for user in step.uses[tensor].tolist():
            if not op < user <= loss or tensor not in lineage.reads[user]:
                continue
            later = set() if is_product(step, user) else _after(step, lineage, user, loss, reach - 1)
            found = found or is_product(step, user) or bool(later)
            ops |= later
    return ops | {op} if found else set()
