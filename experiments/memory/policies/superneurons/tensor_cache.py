"""The device as a cache of tensors: when an allocation does not fit, the least recently used one goes to the
host.

A walk over the step in bytes, without times. It takes the drops and reruns of a plan as given and adds the
copies: out when bytes are needed, back when an op (or a rerun) reads what is away, or ahead of that where
there are free bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from experiments.memory.interface import Drop, Lineage, MemoryMove, MemoryPlan, Offload, Prefetch, Recompute
from experiments.workloads.step import Step


class TensorCache:
    """A device with the least recently used tensors evicted to the host.

    ``fixed`` tensors never leave; ``ahead[i]`` are tensors to be fetched while op ``i`` runs if they are
    away.
    """

    def __init__(
        self,
        step: Step,
        lineage: Lineage,
        capacity: int,
        remade: Sequence[MemoryMove],
        ahead: Mapping[int, Sequence[int]],
        fixed: Collection[int] = (),
    ) -> None:
        self.step, self.lineage, self.capacity, self.ahead = step, lineage, capacity, ahead
        self.size: list[int] = step.tensors.bytes.tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.touched = [row.tolist() for row in step.touched]
        self.given: dict[int, list[MemoryMove]] = defaultdict(list)
        for move in remade:
            self.given[move.at].append(move)
        self.dying: dict[int, list[int]] = defaultdict(list)
        for tensor, when in enumerate(lineage.last_need(MemoryPlan(tuple(remade))).tolist()):
            if when >= 0 and not lineage.persistent[tensor]:
                self.dying[when].append(tensor)
        self.fixed = set(fixed) | set(np.nonzero(step.persistent)[0].tolist())
        self.here: set[int] = set(np.nonzero(step.persistent)[0].tolist())
        self.away: set[int] = set()
        self.order: dict[int, None] = {}
        self.used = step.persistent_bytes
        self.moves: list[MemoryMove] = []

    def run(self) -> tuple[MemoryMove, ...]:
        """The given moves and the copies, in order."""
        for op, touched in enumerate(self.touched):
            for move in self.given[op]:
                self._apply(move)
            self._leave(self.dying[2 * op])
            self._fetch(touched, op)
            new = [t for t in touched if t not in self.here]
            self._make_room(sum(self.size[t] for t in new) + self.workspace[op], touched, op)
            self._enter(new)
            self._fetch_ahead(op)
            self._access(touched)
            self._leave(self.dying[2 * op + 1])
        return tuple(self.moves)

    def _apply(self, move: MemoryMove) -> None:
        if isinstance(move, Drop):
            self._leave([move.tensor])
        if isinstance(move, Recompute):
            sources = [t for op in move.ops for t in self.touched[op] if t in self.here or t in self.away]
            self._fetch(sources, move.at)
            self._make_room(self._recompute_need(move), sources, move.at)
        self.moves.append(move)
        if isinstance(move, Recompute):
            self._enter(move.keep)
            self._access(move.keep)

    def _recompute_need(self, move: Recompute) -> int:
        """The most bytes that a rerun holds at once beyond what is there."""
        last = {t: op for op in move.ops for t in self.touched[op]}
        born: set[int] = set()
        live = most = 0
        for op in move.ops:
            written = [t for t in dict.fromkeys(self.lineage.writes[op]) if t not in born]
            double = sum(self.size[t] for t in written if t in self.here)
            new = [t for t in written if t not in self.here]
            born.update(new)
            live += sum(self.size[t] for t in new)
            most = max(most, live + double + self.workspace[op])
            over = [t for t in born if last[t] == op and t not in move.keep]
            live -= sum(self.size[t] for t in over)
            born.difference_update(over)
        return most

    def _fetch(self, tensors: Iterable[int], op: int) -> None:
        locked = list(tensors)
        for tensor in dict.fromkeys(locked):
            if tensor in self.away:
                self._make_room(self.size[tensor], locked, op)
                self._bring(tensor, op)

    def _fetch_ahead(self, op: int) -> None:
        for tensor in self.ahead.get(op, ()):
            if tensor in self.away and self.used + self.size[tensor] + self.workspace[op] <= self.capacity:
                self._bring(tensor, op)

    def _bring(self, tensor: int, op: int) -> None:
        self.moves.append(Prefetch(op, tensor))
        self.away.discard(tensor)
        self._enter([tensor])
        self._access([tensor])

    def _make_room(self, needed: int, locked: Sequence[int], op: int) -> None:
        """Send the least recently used away; where none is left, the simulation says what is missing."""
        held = set(locked)
        while self.used + needed > self.capacity:
            tensor = next((t for t in self.order if t not in held), None)
            if tensor is None:
                return
            self.moves.append(Offload(op, tensor, op - 1))
            self.here.discard(tensor)
            self.order.pop(tensor)
            self.away.add(tensor)
            self.used -= self.size[tensor]

    def _enter(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            if tensor not in self.here:
                self.here.add(tensor)
                self.used += self.size[tensor]

    def _access(self, tensors: Iterable[int]) -> None:
        """Move to the front; tensors without bytes and fixed ones are not in the list."""
        for tensor in tensors:
            if tensor not in self.fixed and self.size[tensor]:
                self.order.pop(tensor, None)
                self.order[tensor] = None

    def _leave(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            self.order.pop(tensor, None)
            self.away.discard(tensor)
            if tensor in self.here:
                self.here.discard(tensor)
                self.used -= self.size[tensor]
