"""What a plan changes of the step itself before its moves are carried out: ops that write elsewhere, the
order of the ops, shared memory.

``transformed`` gives the step whose ops and tensors the plan's moves name; whoever carries a plan out does so
once. Micro-batches (``MemoryPlan.splits``) come first: a model is captured anew for them and its step says so
(``facts["micro_batches"]``), any other step is cut by ``microbatch.in_microbatches``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.memory.interface.in_place import out_of_place
from experiments.memory.interface.lineage import Lineage
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.interface.plan import MemoryPlan
from experiments.workloads.ragged import Ints, Ragged
from experiments.workloads.step import Step


def changes_step(plan: MemoryPlan, step: Step) -> bool:
    """Return whether ``plan`` is one for another step than ``step`` itself."""
    return bool(plan.order or plan.overlays or plan.out_of_place) or plan.splits != step.facts.get(
        "micro_batches", 1
    )


def transformed(step: Step, plan: MemoryPlan) -> Step:
    """Return ``step`` in the plan's micro-batches and order, with its overlays and ops that write elsewhere.

    It is ``step`` itself where the plan changes nothing. ``BadInput`` says why what the plan changes would
    compute something else.
    """
    if plan.splits != step.facts.get("micro_batches", 1):
        step = in_microbatches(step, plan.splits)
    if plan.out_of_place:
        step = out_of_place(step, plan.out_of_place)
    if plan.order:
        step = reordered(step, plan.order)
    if plan.overlays:
        step = overlaid(step, plan.overlays)
    return step


def reordered(step: Step, order: Sequence[int]) -> Step:
    """Return ``step`` with op ``order[i]`` as op ``i``."""
    if sorted(order) != list(range(len(step.ops))):
        raise BadInput("is no permutation of the ops", "plan.order", f"each of 0..{len(step.ops) - 1} once")
    position = [0] * len(order)
    for new, old in enumerate(order):
        position[old] = new
    fault = order_fault(step, position)
    if fault:
        raise BadInput(fault, "plan.order", "an order in which every op reads what it read before")
    columns: dict[str, Any] = {}
    for column in fields(step.ops):
        values = getattr(step.ops, column.name)
        columns[column.name] = (
            values[list(order)] if isinstance(values, np.ndarray) else tuple(values[op] for op in order)
        )
    moved = replace(
        step,
        ops=type(step.ops)(**columns),
        inputs=step.inputs.take(order),
        outputs=step.outputs.take(order),
        release=_moved_release(step, position),
    )
    moved.__dict__["touched"] = step.touched.take(order)  # known: searches try thousands of orders
    return moved


def _moved_release(step: Step, position: Sequence[int]) -> Ints | None:
    """Return the releases of ``step`` where each stays behind its op."""
    if step.release is None:
        return None
    return np.array([position[op] if op >= 0 else -1 for op in step.release.tolist()], np.int64)


def order_fault(step: Step, position: Sequence[int]) -> str | None:
    """Return what is wrong with an order of ops, or ``None``.

    It is the first op that ``position`` moves across a write of a tensor that it uses, or a random op out of
    turn.
    """
    writers = Lineage(step).writers
    for tensor, row in enumerate(step.uses.lists()):
        writes, latest, written = set(writers[tensor]), -1, -1
        for op in row:
            bound = latest if op in writes else written
            if position[op] < bound:
                return f"op {op} ({step.ops.name[op]}) passes a write or a read of tensor {tensor}"
            latest = max(latest, position[op])
            written = position[op] if op in writes else written
    draws = [position[op] for op in np.nonzero(step.ops.random)[0].tolist()]
    if draws != sorted(draws):
        return "random ops would draw in another order"
    return None


def overlaid(step: Step, overlays: Sequence[tuple[int, int]]) -> Step:
    """Return ``step`` with tensors that take over the memory of others.

    For each pair (new, old) tensor ``new`` takes over that of ``old``, from the op on that makes it.

    ``old`` must be of no use after that op, and at least as large; neither may be persistent.
    """
    home = list(range(len(step.tensors)))
    for new, old in overlays:
        fault = _clash(step, new, old)
        if fault:
            raise BadInput(f"tensor {new} cannot lie over tensor {old}: {fault}", "plan.overlays")
        home[new] = home[old]
    if len({old for _, old in overlays}) < len(overlays):
        raise BadInput("a tensor is overlaid twice", "plan.overlays")

    def overlay(rows: Ragged) -> Ragged:
        return Ragged.of(list(dict.fromkeys(home[t] for t in row.tolist())) for row in rows)

    return replace(step, inputs=overlay(step.inputs), outputs=overlay(step.outputs))


def _clash(step: Step, new: int, old: int) -> str | None:
    if not (0 <= new < len(step.tensors) and 0 <= old < len(step.tensors)) or new == old:
        return "no such pair of tensors"
    if step.persistent[new] or step.persistent[old]:
        return "a persistent tensor keeps its memory"
    if step.tensors.bytes[new] > step.tensors.bytes[old]:
        return f"it needs {step.tensors.bytes[new]} bytes of {step.tensors.bytes[old]}"
    if step.death[old] < 0 or step.first_use[new] < step.death[old]:
        return f"that is still used by op {step.death[old]}"
    return None
