"""Bytes on the device by op, if every copy were over at once: what a composition leaves there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.memory.interface import Drop, Lineage, MemoryMove, Recompute
from experiments.memory.planning.host_update import Update
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step


class LoadCount:
    """Counts what moves change of a step's live bytes."""

    def __init__(self, step: Step, lineage: Lineage) -> None:
        self.step, self.lineage = step, lineage
        self.bytes: list[int] = step.tensors.bytes.tolist()
        self.death: list[int] = step.death.tolist()
        self.born = step.ops.workspace.copy()
        made = ~step.persistent & (step.first_use < len(step.ops))
        np.add.at(self.born, step.first_use[made], step.tensors.bytes[made])

    def load(self, again: Sequence[MemoryMove], on_host: Update | None) -> Ints:
        """The load with the recomputation ``again`` and with an update and its states on the host."""
        load = self.step.live_bytes.copy()
        self._leave_out_dropped(load, again)
        self._count_sources(load, [move for move in again if isinstance(move, Recompute)])
        if on_host:
            self._leave_out_update(load, on_host)
        return load

    def _leave_out_dropped(self, load: Ints, again: Sequence[MemoryMove]) -> None:
        back = {t: move.at for move in again if isinstance(move, Recompute) for t in move.keep}
        for move in again:
            if isinstance(move, Drop):
                load[move.at : back[move.tensor]] -= self.bytes[move.tensor]

    def _count_sources(self, load: Ints, reruns: Sequence[Recompute]) -> None:
        """What reruns make on the way, and what they read of tensors that would be dead."""
        until: dict[int, int] = {}
        for move in reruns:
            load[move.at] += max(0, self.passing_bytes(move) - int(self.born[move.at]))
            until.update((tensor, move.at) for tensor in self.lineage.external(move.ops))
        for tensor, at in until.items():
            if self.death[tensor] < at and not self.lineage.persistent[tensor]:
                load[self.death[tensor] + 1 : at + 1] += self.bytes[tensor]

    def passing_bytes(self, move: Recompute) -> int:
        """Return the most bytes that a rerun has on the device at once beyond what it keeps."""
        last = {t: op for op in move.ops for t in (*self.lineage.reads[op], *self.lineage.writes[op])}
        keep, alive = set(move.keep), dict[int, int]()
        most = 0
        for op in move.ops:
            written = (t for t in self.lineage.writes[op] if not self.lineage.persistent[t])
            alive.update((t, self.bytes[t]) for t in written)
            most = max(most, sum(alive.values()) + int(self.step.ops.workspace[op]))
            for tensor in [t for t in alive if last[t] == op and t not in keep]:
                del alive[tensor]
        return max(0, most - sum(self.bytes[t] for t in keep))

    def _leave_out_update(self, load: Ints, part: Update) -> None:
        """States are on the host, gradients leave as they are made, what the host makes stays there."""
        load -= part.bytes_of(self.step, part.states)
        load[list(part.ops)] -= self.step.ops.workspace[list(part.ops)]
        for tensor, last in part.gradients:
            load[last + 1 : self.death[tensor] + 1] -= self.bytes[tensor]
        first = self.step.first_use
        for op in part.ops:
            for tensor in dict.fromkeys(self.lineage.writes[op]):
                if first[tensor] == op and not self.lineage.persistent[tensor]:
                    load[op : self.death[tensor] + 1] -= self.bytes[tensor]
