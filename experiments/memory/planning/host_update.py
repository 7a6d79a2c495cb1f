"""The optimizer's step on the host: which tensors are resident there, what crosses the link, and how long the
update takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import (
    DeviceView,
    MemoryMove,
    MemoryPlan,
    MemoryPolicy,
    Offload,
    OnHost,
    PlaceTensor,
    Prefetch,
    WaitForCopy,
)
from experiments.workloads.step import KINDS, PHASES, Floats, Step


@dataclass(frozen=True)
class Update:
    """The optimizer's part of a step.

    ``ops`` in order; ``parameters`` that it writes; ``states`` that belong to them; ``gradients``, made by
    the passes and read by it, each with the last op of the passes that touches it.
    """

    ops: tuple[int, ...]
    parameters: tuple[int, ...]
    states: tuple[int, ...]
    gradients: tuple[tuple[int, int], ...]

    def bytes_of(self, step: Step, tensors: tuple[int, ...]) -> int:
        return int(step.tensors.bytes[list(tensors)].sum())


def update_of(step: Step) -> Update | None:
    """The optimizer's part of ``step``; ``None`` for a step without one."""
    ops = np.nonzero(step.ops.phase == PHASES.index("optimizer"))[0].tolist()
    return part_of_update(step, _changing_state(step, ops)) if ops else None


def _changing_state(step: Step, ops: Sequence[int]) -> list[int]:
    """Those of ``ops`` that work on the update's tensors: not the sum of losses of micro-batches."""
    own: set[int] = set()
    for op in reversed(ops):
        written = step.outputs[op].tolist()
        if not own.isdisjoint(written) or step.persistent[written].any():
            own.update(step.inputs[op].tolist())
    found = []
    for op in ops:
        touched = step.touched[op].tolist()
        if not own.isdisjoint(touched) or step.persistent[touched].any():
            own.update(step.outputs[op].tolist())
            found.append(op)
    return found


def part_of_update(step: Step, ops: Sequence[int]) -> Update:
    """What belongs to ``ops`` of the update, which may run between those of the backward pass."""
    updating = step.ops.phase == PHASES.index("optimizer")
    touched = list(dict.fromkeys(t for op in ops for t in step.touched[op].tolist()))
    written = {t for op in ops for t in step.outputs[op].tolist()}
    kind = step.tensors.kind
    parameters = [t for t in touched if kind[t] == KINDS.index("parameter") and t in written]
    states = [t for t in touched if step.persistent[t] and t not in parameters]
    gradients = []
    for t in touched:
        uses = step.uses[t]
        before = uses[~updating[uses]]
        if not step.persistent[t] and len(before):
            gradients.append((t, int(before[-1])))
    return Update(tuple(ops), tuple(parameters), tuple(states), tuple(gradients))


def parameter_count(step: Step, update: Update) -> float:
    """Parameters that ``update`` writes: as the step says, else by their bytes in 32 bits."""
    known = step.facts.get("trained_parameters") or step.facts.get("parameters")
    return float(known or update.bytes_of(step, update.parameters) / 4)


def traffic(step: Step, update: Update) -> int:
    """Bytes that one fused pass of the update reads and writes.

    Parameters and states twice, gradients once.
    """
    gradients = tuple(tensor for tensor, _ in update.gradients)
    twice = update.bytes_of(step, update.parameters) + update.bytes_of(step, update.states)
    return 2 * twice + update.bytes_of(step, gradients)


def update_moves(step: Step, update: Update, seconds: float, late: bool = False) -> list[MemoryMove]:
    """States placed on the host, gradients sent there as they are made, every op of the update run there.

    ``seconds`` is the whole update's time; ``late`` as in ``OnHost``: no later step waits for it then.
    Otherwise the next step begins when the update has ended.
    """
    moves: list[MemoryMove] = [PlaceTensor(0, tensor) for tensor in update.states]
    moves += [Offload(last + 1, tensor, last) for tensor, last in update.gradients]
    for op, part in zip(update.ops, shares(step, update), strict=True):
        moves.append(OnHost(op, seconds * float(part), late=late))
    if not late:
        moves += [WaitForCopy(len(step.ops), tensor) for tensor in (*update.states, *update.parameters)]
    return moves


def parameters_back(step: Step, update: Update) -> list[MemoryMove]:
    """Parameters are on the device with a copy on the host, and each returns when its update has ended."""
    ends = last_writes(step, update)
    places = [PlaceTensor(0, tensor, copy=True) for tensor in update.parameters]
    return [*places, *(Prefetch(ends[tensor] + 1, tensor, keep=True) for tensor in update.parameters)]


def last_writes(step: Step, update: Update) -> dict[int, int]:
    """Return the op with which the update of each parameter ends."""
    wanted = set(update.parameters)
    return {t: op for op in update.ops for t in step.outputs[op].tolist() if t in wanted}


def shares(step: Step, update: Update) -> Floats:
    """Return the part of the update's time that each of its ops takes.

    The host's kernel does all of a parameter's update at once, one parameter after another: a parameter takes
    its share of the bytes, and all of it counts for the op that writes the parameter last.
    """
    place = {op: i for i, op in enumerate(update.ops)}
    weight = np.zeros(len(update.ops))
    for tensor, op in last_writes(step, update).items():
        weight[place[op]] += step.tensors.bytes[tensor]
    return weight / weight.sum() if weight.sum() > 0 else np.full(len(weight), 1 / len(weight))


@dataclass(frozen=True)
class HostUpdatePolicy(MemoryPolicy):
    """The optimizer's step leaves the device: what its policies are asked, and when they do nothing."""

    checkpoint: bool = knob(
        False, "recompute activations by segments as well, as the paper's large models do"
    )
    always: bool = knob(False, "offload even where everything fits the device")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        update = update_of(step)
        if update is None:
            return MemoryPlan(notes={"offloads": "nothing: the step has no optimizer"})
        if not self.always and device.estimate(MemoryPlan()).fits:
            return MemoryPlan(notes={"offloads": "nothing: all fits"})
        return self.offload_plan(step, update, device)

    def offload_plan(self, step: Step, update: Update, device: DeviceView) -> MemoryPlan:
        """The plan for a step that does not fit as it is."""
        raise NotImplementedError
