"""An update by parameters: which ops belong to one parameter alone, and what all of them need.

The share of a model's update that runs on the host can then be what the device cannot hold, as in
DeepSpeed's twin-flow form of ZeRO-Offload. What several parameters need (a count of steps, a bias
correction) is made on the device and copied to the host. Where that needs gradients (a norm over all of
them), or one op updates many parameters, the update is one part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.memory.interface import MemoryMove, Offload, PlaceTensor, Prefetch
from experiments.memory.planning.host_update import Update, part_of_update
from experiments.workloads.step import Step

#: In the place of a parameter: the op contributes to none, or to several.
NONE, SEVERAL = -1, -2


@dataclass(frozen=True)
class UpdateParts:
    """Parts of an update that may run on different processors.

    - ``parts``: one for each parameter, or the whole update alone.
    - ``copied``: tensors made for several parts, each with the op that writes it last.
    - ``constant``: persistent tensors that several parts read and none writes.
    """

    parts: tuple[Update, ...]
    copied: Mapping[int, int]
    constant: tuple[int, ...]

    def first(self, count: int) -> Update:
        """The first ``count`` parts as one."""
        chosen = self.parts[:count]
        return Update(
            tuple(sorted(op for part in chosen for op in part.ops)),
            tuple(tensor for part in chosen for tensor in part.parameters),
            tuple(tensor for part in chosen for tensor in part.states),
            tuple(gradient for part in chosen for gradient in part.gradients),
        )

    def shared_moves(self, count: int) -> list[MemoryMove]:
        """Copies on both sides of what the first ``count`` parts and others need."""
        if count == len(self.parts) == 1:
            return []
        moves: list[MemoryMove] = [PlaceTensor(0, tensor, copy=True) for tensor in self.constant]
        for tensor, op in self.copied.items():
            moves += [Offload(op + 1, tensor, op), Prefetch(op + 1, tensor, keep=True)]
        return moves


def parts_of(step: Step, update: Update) -> UpdateParts:
    """The parts of ``update``, in the order of their first ops."""
    owner = owners(step, update)
    common = [op for op in update.ops if owner[op] < 0]
    own: dict[int, list[int]] = {}
    for op in update.ops:
        own.setdefault(owner[op], []).append(op)
    parts = [part_of_update(step, ops) for key, ops in own.items() if key >= 0]
    gradients = {tensor for tensor, _ in update.gradients}
    touched = {tensor for op in common for tensor in step.touched[op].tolist()}
    written = {tensor for part in parts for tensor in part.parameters}
    if touched & gradients or written != set(update.parameters) or _share_gradients(parts):
        return UpdateParts((update,), {}, ())
    return _without_shared(step, parts, common)


def owners(step: Step, update: Update) -> dict[int, int]:
    """The parameter that each op of the update contributes to; ``NONE``, or ``SEVERAL``.

    What writes a state contributes to the parameter whose update reads it, be it in the next step.
    """
    _, flows = _traced_back(step, update, {})
    states = {tensor: flows[tensor] for tensor in update.states if tensor in flows}
    found, _ = _traced_back(step, update, states)
    return found


def _traced_back(
    step: Step, update: Update, states: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The parameters that each op and each tensor contribute to, given those of ``states`` at the end."""
    parameters = set(update.parameters)
    flows = dict(states)
    found: dict[int, int] = {}
    for op in reversed(update.ops):
        outputs = step.outputs[op].tolist()
        found[op] = _common_owner([t if t in parameters else flows.get(t, NONE) for t in outputs])
        for tensor in step.inputs[op].tolist():
            flows[tensor] = _common_owner([found[op], flows.get(tensor, NONE)])
    return found, flows


def _common_owner(owner: Sequence[int]) -> int:
    different = set(owner) - {NONE}
    return different.pop() if len(different) == 1 else SEVERAL if different else NONE


def _share_gradients(parts: Sequence[Update]) -> bool:
    gradients = [tensor for part in parts for tensor, _ in part.gradients]
    return len(gradients) > len(set(gradients))


def _without_shared(step: Step, parts: Sequence[Update], common: Sequence[int]) -> UpdateParts:
    """``parts`` without the states that are not one part's alone."""
    readers: dict[int, int] = {}
    for part in parts:
        for tensor in part.states:
            readers[tensor] = readers.get(tensor, 0) + 1
    last = {tensor: op for op in common for tensor in step.outputs[op].tolist() if not step.ops.view[op]}
    read = {t for part in parts for op in part.ops for t in step.inputs[op].tolist()}
    copied = {tensor: op for tensor, op in last.items() if tensor in read}
    constant = tuple(t for t, count in readers.items() if count > 1 and t not in last)
    shared = {*copied, *constant}
    own = [
        Update(p.ops, p.parameters, tuple(t for t in p.states if t not in shared), p.gradients) for p in parts
    ]
    return UpdateParts(tuple(own), copied, constant)
