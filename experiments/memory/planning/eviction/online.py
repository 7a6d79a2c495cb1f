"""A step run op by op in a fixed budget, without looking ahead: what does not fit makes others leave, what is
missing is recomputed, with what that in turn is missing first. The run is recorded as a plan.

Two things are known beforehand, because the plan must be right: tensors that could not be recomputed by their
last use (a parameter that they come from will have been updated, as for gradients) never leave; and before a
source of something that has left is overwritten or freed for good, that something is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from experiments.core.errors import Infeasible
from experiments.memory.interface import MemoryMove, MemoryPlan
from experiments.memory.planning.eviction.journal import Departure, Journal, Rerun, Use
from experiments.memory.planning.eviction.neighborhood import Relations, round_to_grain
from experiments.memory.planning.eviction.storages import Storages, Valuation
from experiments.memory.planning.rematerialize import Rematerializer
from experiments.workloads.step import Step

#: Storages below this share of the mean size leave only when no other can: the prototype's rule.
SMALL = 0.01


@dataclass
class Gathering:
    """The tensors that ``block`` reads, while they are brought to the device.

    A block of no ops stands for the step's next one. Those of ``missing``, last first, are still to be there
    and locked.
    """

    tensor: int
    block: tuple[int, ...]
    reads: Sequence[int]
    missing: list[int]


@dataclass(frozen=True)
class EvictionRules:
    """How a run decides.

    - ``valuation``: what the absence of a tensor costs.
    - ``small``: storages below this share of the mean size leave only when no other can.
    - ``limit``: most time of a step, in units of its own compute.
    - ``stay``: what was recomputed for others and nobody refers to any more is evicted as anything else is;
      without, it leaves as soon as it has been read.
    """

    valuation: Callable[[Relations], Valuation]
    small: float = SMALL
    limit: float = 2.0
    stay: bool = True


class OnlineRun:
    """One run of ``step`` within ``budget`` bytes; ``run`` gives what it did.

    Reruns of more than ``rules`` allow raise ``Infeasible``: the run thrashes.
    """

    def __init__(self, step: Step, budget: int, rules: EvictionRules) -> None:
        self.step, self.budget = step, budget
        self.remake = Rematerializer(step)
        self.lineage = self.remake.lineage
        self.relations = Relations(step, self.lineage)
        self.stay, self.limit = rules.stay, (rules.limit - 1) * step.seconds
        sizes = step.tensors.bytes[~step.persistent]
        least = rules.small * float(sizes.mean()) if len(sizes) else 0.0
        self.storages = Storages(step, rules.valuation(self.relations), least)
        self.resident, self.size = self.storages.resident, self.storages.size
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.ticks: list[float] = round_to_grain(step.ops.seconds).tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.first: list[int] = step.first_use.tolist()
        self.last: list[int] = step.last_use.tolist()
        self.death: list[int] = step.death.tolist()
        self.touched = step.touched.lists()
        self.dying = self._dying()
        self.deadline = self.remake.deadlines()
        self.spent = 0.0
        self.journal = Journal(self.lineage)

    def run(self) -> tuple[MemoryMove, ...]:
        """All moves of the run, in order."""
        for op in range(len(self.touched)):
            self._rescue(op, self._overwritten(op))
            self._op(op)
        return self.journal.moves()

    def _dying(self) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in self.touched]
        for tensor, op in enumerate(self.death):
            if op >= 0 and not self.lineage.persistent[tensor]:
                rows[op].append(tensor)
        return rows

    def _op(self, op: int) -> None:
        touched, storages = self.touched[op], self.storages
        reads = [t for t in touched if self.first[t] < op and not self.lineage.persistent[t]]
        self._gather(reads, op)
        new = [t for t in touched if not self.resident[t]]
        self._make_room(sum(self.size[t] for t in new) + self.workspace[op], op)
        self.journal.events.append(Use(touched))
        storages.clock += self.ticks[op]
        for tensor in new:
            self._enter(tensor)
        storages.unlock(reads)
        storages.access(t for t in touched if t in new or t in self.lineage.writes[op])
        self._release(op)

    def _release(self, op: int) -> None:
        """What the program lets go of behind ``op`` leaves at once. It counts as evicted: what is made of it
        costs more to make again.
        """
        dying = [t for t in self.dying[op] if self.resident[t]]
        self._rescue(op + 1, self._orphans(dying, op + 1))
        for tensor in dying:
            self._leave(tensor, op + 1)

    # --- recomputing ----------------------------------------------------------------------------------------

    def _gather(self, reads: Sequence[int], at: int) -> None:
        """Have ``reads`` resident and locked. What is missing is recomputed, each with what it reads itself
        first.
        """
        stack = [self._begin(-1, (), reads)]
        while stack:
            top = stack[-1]
            while top.missing and self.resident[top.missing[-1]]:
                self.storages.lock(top.missing.pop())
            if top.missing:
                tensor = top.missing[-1]
                if any(under.tensor == tensor for under in stack):
                    raise self._cannot(tensor, at)
                block = self._block(tensor, at)
                stack.append(self._begin(tensor, block, self._sources(block)))
            else:
                stack.pop()
                if top.block:
                    self._rerun(top, at)

    def _begin(self, tensor: int, block: tuple[int, ...], reads: Sequence[int]) -> Gathering:
        self.storages.access(reads)
        missing = []
        for source in reads:
            if self.resident[source]:
                self.storages.lock(source)
            else:
                missing.append(source)
        return Gathering(tensor, block, reads, missing[::-1])

    def _block(self, tensor: int, at: int) -> tuple[int, ...]:
        """The ops that make ``tensor`` again: its own, and those that no rerun can part from them."""
        makers = self.lineage.writers[tensor]
        if len(makers) == 1 and makers[0] < at and self.remake.reads_what_stays(makers[0]):
            return (makers[0],)
        chain = self.remake.chain([tensor], self.resident.__getitem__, at)
        if chain.stuck:
            raise self._cannot(min(chain.stuck), at)
        last = max(op for op in makers if op < at)
        return next(block for block in self._blocks(chain.ops) if block[-1] >= last)

    def _cannot(self, tensor: int, at: int) -> Infeasible:
        named = f"tensor {tensor} ({self.step.tensors.name[tensor]})"
        return Infeasible(f"{named} cannot be recomputed", self._name(at))

    def _sources(self, block: tuple[int, ...]) -> list[int]:
        return [s for s in self.lineage.external(block) if not self.lineage.persistent[s]]

    def _rerun(self, what: Gathering, at: int) -> None:
        """Run the block; all that it makes stays until it is evicted, a second copy of what is there is
        released at once.
        """
        block = what.block
        written = dict.fromkeys(t for op in block for t in self.lineage.writes[op])
        new = [t for t in written if not self.resident[t] and not self.lineage.persistent[t]]
        doubles = sum(self.size[t] for t in written if t not in new)
        scratch = max(self.workspace[op] for op in block)
        self._make_room(sum(self.size[t] for t in new) + doubles + scratch, at)
        whole = [t for t in new if self._is_whole(t, block, at)]
        self.journal.events.append(Rerun(at, block, what.reads, whole))
        self.storages.clock += sum(self.ticks[op] for op in block)
        self.spent += sum(self.seconds[op] for op in block)
        for tensor in whole:
            self._enter(tensor)
        self.storages.unlock(what.reads)
        if not self.stay:
            self._let_go(what.reads, at)
        if self.spent > self.limit:
            raise Infeasible(f"recomputation exceeds its limit of {self.limit:.3g} s", self._name(at))

    def _let_go(self, tensors: Sequence[int], at: int) -> None:
        """Those that nobody refers to or is about to read leave."""
        for tensor in tensors:
            if self.death[tensor] < at and not self.storages.is_locked(tensor):
                self._leave(tensor, at)

    def _is_whole(self, tensor: int, block: tuple[int, ...], at: int) -> bool:
        """All ops that have written ``tensor`` so far are in ``block``."""
        return all(op in block for op in self.lineage.writers[tensor] if op < at)

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
        while self.storages.used + needed > self.budget:
            tensor = self._cheapest(at)
            if tensor is None:
                missing = self.storages.used + needed - self.budget
                raise Infeasible(
                    f"nothing can be evicted: {missing} bytes are missing", self._name(at), missing
                )
            self._leave(tensor, at)

    def _cheapest(self, at: int) -> int | None:
        """The evictable tensor of least price by byte and staleness."""
        while True:
            found = self.storages.cheapest()
            if found is None or not self._is_lost(found, at + 1):  # op ``at`` may overwrite a source
                return found
            self.storages.fix(found)

    def _is_lost(self, tensor: int, at: int) -> bool:
        """If ``tensor`` were gone before op ``at``, it could not be recomputed from what the step still
        needs.
        """
        if self.deadline[tensor] >= len(self.touched):
            return False

        def present(other: int) -> bool:
            return other != tensor and self.resident[other] and self.death[other] >= at - 1

        return bool(self.remake.chain([tensor], present, at).stuck)

    # --- rescue ---------------------------------------------------------------------------------------------

    def _overwritten(self, op: int) -> set[int]:
        """Tensors that have left and whose ops would read something else once ``op`` has run."""
        readers = {
            reader
            for tensor in self.lineage.writes[op]
            if self.first[tensor] < op
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
            if self.deadline[tensor] >= len(self.touched):
                continue
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
        rescued = sorted(tensors)
        self._gather(rescued, at)
        self.storages.unlock(rescued)

    # --- accounts -------------------------------------------------------------------------------------------

    def _enter(self, tensor: int) -> None:
        self.storages.enter(tensor)
        if self.last[tensor] > self.deadline[tensor]:
            self.storages.fix(tensor)

    def _leave(self, tensor: int, at: int) -> None:
        self.journal.events.append(Departure(at, tensor))
        self.storages.leave(tensor)

    def _name(self, op: int) -> str:
        return f"op {op} ({self.step.ops.name[op]})" if op < len(self.step.ops) else "end of the step"


def evict_online(step: Step, capacity: int, rules: EvictionRules) -> MemoryPlan:
    """The plan of a run of ``step`` in ``capacity`` bytes by ``rules``."""
    run = OnlineRun(step, capacity, rules)
    moves = run.run()
    return MemoryPlan(moves, notes={"overhead": 1 + run.spent / step.seconds if step.seconds else 1.0})
