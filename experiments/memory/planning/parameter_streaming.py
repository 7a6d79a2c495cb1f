"""Parameters that pass through the device: the stretches of a step in which one is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.memory.interface import Recompute
from experiments.memory.planning.host_update import Update
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Stretch:
    """A pass (or one and the next) uses ``tensor`` from op ``first`` to op ``last``."""

    tensor: int
    first: int
    last: int


def stretches(step: Step, update: Update, reruns: Sequence[Recompute] = ()) -> list[Stretch]:
    """Return one stretch for each parameter and pass, in the order of their first ops.

    One where two passes follow each other.

    A rerun uses its ops' parameters before the op that it stands at.
    """
    again: dict[int, set[int]] = {}
    for move in reruns:
        for op in move.ops:
            for tensor in step.inputs[op].tolist():
                again.setdefault(tensor, set()).add(move.at)
    found, updates = [], set(update.ops)
    for tensor in update.parameters:
        passes = {op for op in step.uses[tensor].tolist() if op not in updates}
        uses = sorted(passes | again.get(tensor, set()))
        begin = 0
        for i, op in enumerate(uses):
            after = uses[i + 1] if i + 1 < len(uses) else len(step.ops)
            ends = i + 1 == len(uses) or step.ops.phase[op] != step.ops.phase[after]
            if ends and after > op + 1:
                found.append(Stretch(tensor, uses[begin], op))
                begin = i + 1
    return sorted(found, key=lambda stretch: (stretch.first, stretch.tensor))
