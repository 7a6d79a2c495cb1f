"""PyTorch's own execution traces: which of the nested calls are ops, their phases, and which storages are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.readers.chakra_nodes import Node, TensorUse
from experiments.readers.kineto_events import Call
from experiments.readers.kineto_ops import BACKWARD, OPTIMIZER, is_op


def select_calls(nodes: Sequence[Node]) -> tuple[list[Node], list[str]]:
    """The ops in order of their ids, which count calls as they start, and the phase of each."""
    ordered = sorted(nodes, key=lambda node: node.id)
    by_id = {node.id: node for node in ordered}
    calls = {n.id: Call(n.name, "cpu_op", "", float(n.id), float(n.id), {"id": n.id}) for n in ordered}
    roots: list[Call] = []
    for node in ordered:
        parent = calls.get(node.parent) if node.parent is not None and node.parent < node.id else None
        (parent.children if parent is not None else roots).append(calls[node.id])
    rows: list[Node] = []
    phases: list[str] = []
    for call, phase in _ops(roots):
        rows.append(by_id[call.args["id"]])
        phases.append(phase)
    return _told_apart(rows), _with_update(phases)


def _ops(roots: Sequence[Call]) -> list[tuple[Call, str]]:
    """Ops with the phase that the calls around them speak of; no recursion."""
    found = []
    todo = [(call, "forward") for call in reversed(roots)]
    while todo:
        call, phase = todo.pop()
        if call.name.startswith(BACKWARD):
            phase = "backward"
        elif OPTIMIZER.match(call.name):
            phase = "optimizer"
        if is_op(call):
            found.append((call, phase))
        else:
            todo.extend((child, phase) for child in reversed(call.children))
    return found


def _with_update(phases: list[str]) -> list[str]:
    last = max((index for index, phase in enumerate(phases) if phase == "backward"), default=len(phases))
    return [*phases[: last + 1], *("optimizer" for _ in phases[last + 1 :])]


def _told_apart(rows: Sequence[Node]) -> list[Node]:
    """The same nodes with a number of its own for each storage. PyTorch numbers storages by their place in
    memory, which is given out again: an op that writes a storage and does not read it made a new one.
    """
    current: dict[int, int] = {}
    count = 0
    out = []
    for node in rows:
        read = {use.storage for use in node.inputs}
        for storage in [*read, *(use.storage for use in node.outputs if use.storage not in read)]:
            if storage not in current or storage not in read:
                current[storage] = count
                count += 1
        out.append(
            replace(node, inputs=_rename(node.inputs, current), outputs=_rename(node.outputs, current))
        )
    return out


def _rename(uses: Sequence[TensorUse], current: dict[int, int]) -> tuple[TensorUse, ...]:
    return tuple(replace(use, storage=current[use.storage]) for use in uses)
