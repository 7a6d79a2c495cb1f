"""A step run op by op in a fixed budget, without looking ahead: what does not fit makes others leave, what is
missing is recomputed. The run is recorded as a plan.

``Valuation`` decides who leaves. Two things are known beforehand, because the plan must be right: tensors
whose ops cannot run again while they are still needed (a source will have been overwritten, state is updated)
never leave; and before a source of something that has left is overwritten or freed for good, that something
is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from experiments.core.errors import Infeasible
from experiments.memory.interface import Drop, Lineage, MemoryMove, Recompute
from experiments.memory.planning.rematerialize import Rematerializer
from experiments.workloads.step import Step


class Valuation(Protocol):
    """Says what the absence of a tensor costs, and is notified who left and who came back."""

    def price(self, tensor: int) -> float:
        """Seconds of compute at stake when ``tensor`` leaves."""

    def note_departure(self, tensor: int) -> None: ...

    def note_return(self, tensor: int) -> None: ...


class Relations:
    """Of every tensor the seconds that its ops took, the tensors it was made from and those made from it."""

    def __init__(self, step: Step, lineage: Lineage) -> None:
        seconds: list[float] = step.ops.seconds.tolist()
        count = len(step.tensors)
        self.cost: list[float] = [sum(seconds[op] for op in makers) for makers in lineage.writers]
        self.parents: list[list[int]] = [[] for _ in range(count)]
        self.children: list[list[int]] = [[] for _ in range(count)]
        for tensor, makers in enumerate(lineage.writers):
            if not lineage.persistent[tensor]:
                reads = dict.fromkeys(s for op in makers for s in lineage.reads[op])
                self.parents[tensor] = [s for s in reads if s != tensor and not lineage.persistent[s]]
                for source in self.parents[tensor]:
                    self.children[source].append(tensor)


class OnlineRun:
    """One run of ``step`` within ``budget`` bytes; ``moves`` are what it did.

    Tensors of at most ``least`` bytes leave only when no other can. More than ``limit`` times the step's own
    compute raises ``Infeasible``: the run thrashes.
    """

    def __init__(
        self, step: Step, budget: int, relations: Relations, valuation: Valuation, least: float, limit: float
    ) -> None:
        self.step, self.budget, self.relations, self.valuation = step, budget, relations, valuation
        self.remake = Rematerializer(step)
        self.lineage = self.remake.lineage
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.size: list[int] = step.tensors.bytes.tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.first: list[int] = step.first_use.tolist()
        self.last: list[int] = step.last_use.tolist()
        self.touched = [row.tolist() for row in step.touched]
        self.limit, self.least = limit * step.seconds, least
        self.resident = list(self.lineage.persistent)
        self.used = step.persistent_bytes
        self.clock = self.spent = 0.0
        self.access = [0.0] * len(self.size)
        self.locked: dict[int, int] = {}
        self.pool: dict[int, None] = {}
        self.small: dict[int, None] = {}
        self.constant: set[int] = set()
        self.late_drops: dict[int, Drop] = {}
        self.moves: list[MemoryMove] = []

    def run(self) -> tuple[MemoryMove, ...]:
        """All moves of the run, in order."""
        for op in range(len(self.touched)):
            self._rescue(op, self._overwritten(op))
            self._op(op)
        return (*self.late_drops.values(), *self.moves)

    def _op(self, op: int) -> None:
        touched = self.touched[op]
        self._lock(touched)
        self._make_again([t for t in touched if self.first[t] < op and not self.resident[t]], op)
        new = [t for t in touched if not self.resident[t]]
        self._make_room(sum(self.size[t] for t in new) + self.workspace[op], op)
        for tensor in new:
            self._enter(tensor)
        self._compute(self.seconds[op], touched)
        self._unlock(touched)
        dying = [t for t in touched if self.last[t] == op and not self.lineage.persistent[t]]
        self._rescue(op + 1, self._orphans(dying, op + 1))
        for tensor in dying:
            self._leave(tensor)

    # --- recomputing ----------------------------------------------------------------------------------------

    def _make_again(self, missing: Sequence[int], at: int) -> None:
        """Run the ops behind ``missing`` in their first order, each block as soon as its sources
        are there.
        """
        if not missing:
            return
        chain = self.remake.chain(missing, self.resident.__getitem__, at)
        if chain.stuck:
            tensor = min(chain.stuck)
            raise Infeasible(
                f"tensor {tensor} ({self.step.tensors.name[tensor]}) cannot be recomputed", self._name(at)
            )
        blocks = self._blocks(chain.ops)
        reads = [
            [s for s in self.lineage.external(block) if not self.lineage.persistent[s]] for block in blocks
        ]
        for sources in reads:
            self._lock(sources)
        for position, (block, sources) in enumerate(zip(blocks, reads, strict=True)):
            later = {s for rest in reads[position + 1 :] for s in rest}
            self._rerun(block, at, later)
            self._unlock(sources)
            for source in sources:
                if self.last[source] < at and source not in self.locked and self.resident[source]:
                    self.moves.append(Drop(at, source))
                    self._leave(source)

    def _rerun(self, block: tuple[int, ...], at: int, later: set[int]) -> None:
        """One ``Recompute``: what is needed later stays, a second copy of what is there is
        released at once.
        """
        written = dict.fromkeys(t for op in block for t in self.lineage.writes[op])
        new = [t for t in written if not self.resident[t] and not self.lineage.persistent[t]]
        doubles = sum(self.size[t] for t in written if t not in new)
        scratch = max(self.workspace[op] for op in block)
        self._make_room(sum(self.size[t] for t in new) + doubles + scratch, at)
        keep = [t for t in new if self.last[t] >= at or t in later]
        self.moves.append(Recompute(at, block, tuple(keep)))
        for tensor in keep:
            if self.last[tensor] < at:
                self.late_drops.setdefault(tensor, Drop(self.last[tensor] + 1, tensor))
            self._enter(tensor)
            self.valuation.note_return(tensor)
        seconds = sum(self.seconds[op] for op in block)
        self.spent += seconds
        self._compute(seconds, keep)
        if self.spent > self.limit:
            raise Infeasible(f"recomputation exceeds its limit of {self.limit:.3g} s", self._name(at))

    def _blocks(self, ops: Sequence[int]) -> list[tuple[int, ...]]:
        """``ops`` cut wherever no tensor is half written: all ops that write one tensor stay together."""
        reach: dict[int, int] = {}
        for op in ops:
            for tensor in self.lineage.writes[op]:
                reach[tensor] = op
        blocks: list[tuple[int, ...]] = []
        block: list[int] = []
        end = -1
        for op in ops:
            block.append(op)
            end = max([end, *(reach[tensor] for tensor in self.lineage.writes[op])])
            if op >= end:
                blocks.append(tuple(block))
                block = []
        return blocks

    # --- who leaves -----------------------------------------------------------------------------------------

    def _make_room(self, needed: int, at: int) -> None:
        while self.used + needed > self.budget:
            tensor = self._cheapest(at)
            if tensor is None:
                missing = self.used + needed - self.budget
                raise Infeasible(
                    f"nothing can be evicted: {missing} bytes are missing", self._name(at), missing
                )
            self.moves.append(Drop(at, tensor))
            self._leave(tensor)
            self.valuation.note_departure(tensor)

    def _cheapest(self, at: int) -> int | None:
        """The evictable tensor of least price by byte and staleness; small ones only where there
        is no other.
        """
        while True:
            found = self._best(self.pool)
            if found is None:
                found = self._best(self.small)
            if found is None or not self._is_lost(found, at + 1):  # op ``at`` may overwrite a source
                return found
            self.constant.add(found)
            self.pool.pop(found, None)
            self.small.pop(found, None)

    def _best(self, pool: Iterable[int]) -> int | None:
        """The one with the least score; among equals the one that entered last; a score of 0 ends
        the search.
        """
        best, least = None, float("inf")
        for tensor in pool:
            if tensor in self.locked:
                continue
            score = self._score(tensor)
            if score <= least:
                best, least = tensor, score
            if score == 0:
                break
        return best

    def _score(self, tensor: int) -> float:
        stale = self.size[tensor] * (self.clock - self.access[tensor])
        return self.valuation.price(tensor) / stale if stale > 0 else float("inf")

    def _is_lost(self, tensor: int, at: int) -> bool:
        """If ``tensor`` were gone before op ``at``, it could not be recomputed from what the step still
        needs.
        """

        def present(other: int) -> bool:
            return other != tensor and self.resident[other] and self.last[other] >= at - 1

        return bool(self.remake.chain([tensor], present, at).stuck)

    def _stays_needed(self, tensor: int) -> bool:
        """A source of ``tensor`` is overwritten before its last use: by then it could not be recomputed."""
        makers, last = self.lineage.writers[tensor], self.last[tensor]
        return any(self.remake.is_fixed(op, lambda s: s != tensor, last) for op in makers if op < last)

    # --- rescue ---------------------------------------------------------------------------------------------

    def _overwritten(self, op: int) -> set[int]:
        """Tensors that have left and whose ops would read something else once ``op`` has run."""
        readers = {
            reader
            for tensor in self.lineage.writes[op]
            for reader in self.step.uses[tensor].tolist()
            if reader < op and tensor not in self.lineage.writes[reader]
        }
        return self._absent_needed([t for reader in readers for t in self.lineage.writes[reader]], op)

    def _orphans(self, dying: Sequence[int], at: int) -> set[int]:
        """Tensors that have left, are needed, and can be made only from ``dying`` ones that cannot be
        recomputed.
        """
        found: set[int] = set()
        for tensor in dying:
            self.resident[tensor] = False
        for tensor in dying:
            needed = self._absent_needed(self.relations.children[tensor], at)
            if needed and self._is_lost(tensor, at):
                found |= needed
        for tensor in dying:
            self.resident[tensor] = True
        return found

    def _absent_needed(self, start: Iterable[int], at: int) -> set[int]:
        """Those of ``start``, and of what was made from them, that are not resident and still needed from
        ``at`` on.
        """
        found: set[int] = set()
        seen: set[int] = set()
        todo = list(start)
        while todo:
            tensor = todo.pop()
            if tensor in seen or self.resident[tensor] or self.first[tensor] >= at:
                continue
            seen.add(tensor)
            if self.last[tensor] >= at:
                found.add(tensor)
            todo += self.relations.children[tensor]
        return found

    def _rescue(self, at: int, tensors: set[int]) -> None:
        self._make_again(sorted(tensors), at)

    # --- accounts -------------------------------------------------------------------------------------------

    def _enter(self, tensor: int) -> None:
        self.resident[tensor] = True
        self.used += self.size[tensor]
        if tensor in self.constant or self._stays_needed(tensor):
            self.constant.add(tensor)
        elif self.size[tensor] > self.least:
            self.pool[tensor] = None
        elif self.size[tensor]:
            self.small[tensor] = None

    def _leave(self, tensor: int) -> None:
        self.resident[tensor] = False
        self.used -= self.size[tensor]
        self.pool.pop(tensor, None)
        self.small.pop(tensor, None)

    def _compute(self, seconds: float, touched: Iterable[int]) -> None:
        self.clock += seconds
        for tensor in touched:
            self.access[tensor] = self.clock

    def _lock(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            self.locked[tensor] = self.locked.get(tensor, 0) + 1

    def _unlock(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            self.locked[tensor] -= 1
            if not self.locked[tensor]:
                del self.locked[tensor]

    def _name(self, op: int) -> str:
        return f"op {op} ({self.step.ops.name[op]})" if op < len(self.step.ops) else "end of the step"
