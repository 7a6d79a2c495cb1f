"""In-place ops of a traced step that write elsewhere: the same kernels, another tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from experiments.core.errors import BadInput
from experiments.memory.interface.in_place import elsewhere, out_of_place
from experiments.profiling.capture import Traced


def writing_elsewhere(traced: Traced, ops: Sequence[int]) -> Traced:
    """``traced`` with the out-of-place form of ``ops``; its step and its tensors are those of the plan's."""
    step = out_of_place(traced.step, ops)
    module = copy.deepcopy(traced.graph_module)
    order = {node.name: place for place, node in enumerate(module.graph.nodes)}
    new = {traced.step.ops.name[op]: len(traced.step.tensors) + i for i, op in enumerate(ops)}
    latest: dict[int, int] = {}
    tensor_of = {}
    for node in module.graph.nodes:
        if node.name in new:
            node.target = _form_of(node)
            _refuse_later_readers(node, order)
            (old,) = traced.tensor_of[node.name]
            latest[old] = new[node.name]
        if node.name in traced.tensor_of:
            tensor_of[node.name] = tuple(latest.get(t, t) for t in traced.tensor_of[node.name])
    return replace(traced, step=step, graph_module=module, tensor_of=tensor_of)


def _form_of(node: fx.Node) -> torch._ops.OpOverload:
    """The op that computes what ``node`` does, into a new tensor."""
    assert isinstance(node.target, torch._ops.OpOverload)
    _, name, overload = elsewhere(str(node.target)).split(".")
    form: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, name), overload)
    return form


def _refuse_later_readers(node: fx.Node, order: dict[str, int]) -> None:
    """What the op was to write over must not be read by its old name later."""
    for read in node.all_input_nodes[:1]:
        late = [user.name for user in read.users if order[user.name] > order[node.name]]
        if late:
            raise BadInput(
                f"{late[0]} reads what {node.name} writes over", "plan.out_of_place", "readers of its result"
            )
