"""Rematerialization: tensors leave after a use and are recomputed before a later one.

A policy says *what* is wanted again and *when* (``Demand``); ``moves_for`` works out which ops must run for
it, when the tensors are dropped, and which of them cannot be recomputed and therefore stay: those of ops that
update a persistent tensor, and those of ops whose sources have been overwritten meanwhile (a parameter that
was updated during the backward pass, an activation changed in place). Random ops run again from the generator
state of their first run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from experiments.memory.interface import Drop, Lineage, MemoryMove, Recompute
from experiments.workloads.step import Step

Present = Callable[[int], bool]


@dataclass(frozen=True)
class Demand:
    """The tensors ``wanted`` have left after their use before op ``at`` and are recomputed before it.

    Wanted tensors that ``at`` or a later op uses are saved ones; others are held as sources of later demands.
    """

    at: int
    wanted: tuple[int, ...]


@dataclass(frozen=True)
class RecomputeChain:
    """Ops (ascending) to run again; ``stuck`` are tensors needed for it that cannot be recomputed."""

    ops: tuple[int, ...]
    stuck: frozenset[int]


def with_drops(step: Step, lineage: Lineage, reruns: Sequence[Recompute]) -> tuple[MemoryMove, ...]:
    """``reruns`` (one an op, ascending) and the drops that follow from them.

    Whatever is recomputed left before. A tensor leaves after its last need before it is made, be that an op
    or a rerun that reads it. It is not made where nothing needs it until it is made anew.
    """
    reads: dict[int, list[int]] = {}
    makes: dict[int, list[int]] = {}
    for rerun in reruns:
        for tensor in lineage.external(rerun.ops):
            reads.setdefault(tensor, []).append(2 * rerun.at)
        for tensor in rerun.keep:
            makes.setdefault(tensor, []).append(2 * rerun.at)
    early: list[MemoryMove] = []
    late: list[MemoryMove] = []
    useful: set[tuple[int, int]] = set()
    for tensor, times in makes.items():
        needs = sorted([*(2 * op + 1 for op in step.uses[tensor].tolist()), *reads.get(tensor, ())])
        for time in reversed(times):
            if not any(need > time for need in needs):
                continue
            before = max(need for need in needs if need < time)
            needs = [need for need in needs if need < time]
            if before + 1 <= time:
                useful.add((time // 2, tensor))
                drops = early if before % 2 else late
                drops.append(Drop((before + 1) // 2, tensor))
    kept = [replace(rerun, keep=tuple(t for t in rerun.keep if (rerun.at, t) in useful)) for rerun in reruns]
    return (*early, *(rerun for rerun in kept if rerun.keep), *late)


class Rematerializer:
    """Works out reruns for one step. Every tensor is demanded at most once; the earliest demand counts."""

    def __init__(self, step: Step, lineage: Lineage | None = None) -> None:
        self.step = step
        self.lineage = lineage or Lineage(step)
        self._uses: list[list[int]] = [row.tolist() for row in step.uses]
        self._last: list[int] = step.last_use.tolist()
        self._bytes: list[int] = step.tensors.bytes.tolist()
        ops = range(len(step.ops))
        self._repeatable = [self.lineage.repeatable(op) for op in ops]
        self._sources = [self._read_again(op) for op in ops]
        self._changing = [self._changes_after(op) for op in ops]
        self._steady = [self.reads_what_stays(op) for op in ops]

    def chain(self, wanted: Iterable[int], present: Present, at: int) -> RecomputeChain:
        """Ops that recompute ``wanted`` before op ``at`` from persistent and ``present`` tensors."""
        writers, steady, sources = self.lineage.writers, self._steady, self._sources
        ops: set[int] = set()
        stuck: set[int] = set()
        todo = list(wanted)
        seen = set(todo)
        while todo:
            tensor = todo.pop()
            makers = [op for op in writers[tensor] if op < at]
            if not makers or any(not steady[op] and self.is_fixed(op, present, at) for op in makers):
                stuck.add(tensor)
                continue
            ops.update(makers)
            fresh = [s for op in makers for s in sources[op] if s not in seen and not present(s)]
            seen.update(fresh)
            todo += dict.fromkeys(fresh)
        return RecomputeChain(tuple(sorted(ops)), frozenset(stuck))

    def _read_again(self, op: int) -> list[int]:
        """Tensors that must exist before ``op`` runs again, persistent ones apart."""
        reads = dict.fromkeys(self.lineage.reads[op])
        return [s for s in reads if not self.lineage.persistent[s] and not self._begins(op, s)]

    def _begins(self, op: int, tensor: int) -> bool:
        """``op`` lists a tensor of its own making as read and written; no other op wrote it before."""
        return tensor in self.lineage.writes[op] and not self.lineage.version(tensor, op)

    def _changes_after(self, op: int) -> list[tuple[int, int, bool]]:
        """(source, first op from ``op`` on that writes it, whether it is persistent), where there is such an
        op.
        """
        found = []
        for source in dict.fromkeys(self.lineage.reads[op]):
            writers = self.lineage.writers[source]
            version = self.lineage.version(source, op)
            if version < len(writers) and not self.lineage.is_scratch(op, source):
                found.append((source, writers[version], self.lineage.persistent[source]))
        return found

    def reads_what_stays(self, op: int) -> bool:
        """Return whether ``op`` can run again at any time: nothing that it reads is ever written after it."""
        return self._repeatable[op] and not self._changing[op]

    def deadlines(self) -> list[int]:
        """Return, for each tensor, the last op before which it can be made again from persistent tensors.

        That is the first op that changes state it comes from; -1 where an op behind it runs only once, the
        number of ops where nothing stands in the way. What is used beyond its own deadline is taken to stay
        on the device, so that what comes from it can be made again until its death.
        """
        endless, persistent = len(self._repeatable), self.lineage.persistent
        death: list[int] = self.step.death.tolist()
        found = [endless if makers else -1 for makers in self.lineage.writers]
        for op, written in enumerate(self.lineage.writes):
            until = endless if self._repeatable[op] else -1
            changed = {source: change for source, change, _ in self._changing[op]}
            until = min([until, *(at for source, at in changed.items() if persistent[source])])
            for source in self._sources[op]:
                stays = self._last[source] > found[source]
                until = min(
                    until, min(death[source], changed.get(source, endless)) if stays else found[source]
                )
            for tensor in written:
                found[tensor] = min(found[tensor], until)
        return found

    def is_fixed(self, op: int, present: Present, at: int) -> bool:
        """Whether ``op`` would give something else before op ``at``.

        It updates state, or a source has changed since.
        """
        if not self._repeatable[op]:
            return True
        return any(change < at and (kept or present(source)) for source, change, kept in self._changing[op])

    def gap_before(self, tensor: int, at: int) -> int:
        """The last op before ``at`` that uses ``tensor``; -1 when there is none."""
        return max((op for op in self._uses[tensor] if op < at), default=-1)

    def moves_for(self, demands: Sequence[Demand], held: Collection[int] = ()) -> tuple[MemoryMove, ...]:
        """Drops and reruns for ``demands``; what cannot be recomputed stays on the device.

        Sources of a rerun are persistent tensors, those that the step itself still needs, those recomputed
        before, and ``held`` ones, which stay as long as a rerun reads them.
        """
        asked = self._once(demands)
        while True:
            chains, stays = self._attempt(asked, frozenset(held))
            stays = stays or self._unread(asked, chains)
            if not stays:
                return self._moves(asked, chains)
            asked = [replace(d, wanted=tuple(t for t in d.wanted if t not in stays)) for d in asked]

    def _once(self, demands: Sequence[Demand]) -> list[Demand]:
        """In order of ``at``, each tensor with its earliest demand, those without bytes or without a gap left
        out.
        """
        asked, seen = [], set()
        for demand in sorted(demands, key=lambda demand: demand.at):
            fresh = [t for t in dict.fromkeys(demand.wanted) if t not in seen and self._bytes[t]]
            seen.update(fresh)
            wanted = tuple(t for t in fresh if 0 <= self.gap_before(t, demand.at) < demand.at - 1)
            asked.append(replace(demand, wanted=wanted))
        return asked

    def _attempt(
        self, asked: Sequence[Demand], held: frozenset[int]
    ) -> tuple[list[tuple[int, ...]], set[int]]:
        """The ops of each demand, and the wanted tensors that have to stay."""
        gone = {t: (self.gap_before(t, demand.at), demand.at) for demand in asked for t in demand.wanted}
        chains, stays = [], set()
        for demand in asked:
            present = self._presence(demand.at, gone, held)
            chain = self.chain(demand.wanted, present, demand.at)
            chains.append(chain.ops)
            if chain.stuck:
                stays |= self._must_stay(demand, chain.stuck, set(gone), present)
        return chains, stays

    def _presence(self, at: int, gone: dict[int, tuple[int, int]], held: frozenset[int]) -> Present:
        def present(tensor: int) -> bool:
            if tensor in gone:
                left, back = gone[tensor]
                return at <= left or back < at
            return self._last[tensor] >= at or tensor in held

        return present

    def _must_stay(self, demand: Demand, stuck: frozenset[int], gone: set[int], present: Present) -> set[int]:
        """Stuck tensors that were to leave stay instead; where a stuck one is dead, what depends
        on it stays.
        """
        blamed = set(stuck) & gone
        if stuck <= gone:
            return blamed
        lost = {t for t in demand.wanted if self.chain([t], present, demand.at).stuck - gone}
        return blamed | lost

    def _unread(self, asked: Sequence[Demand], chains: Sequence[tuple[int, ...]]) -> set[int]:
        """Wanted tensors that the step does not use again and no later rerun reads: nothing is to be done for
        them.
        """
        found: set[int] = set()
        read_later: set[int] = set()
        for demand, ops in reversed(list(zip(asked, chains, strict=True))):
            found.update(t for t in demand.wanted if self._last[t] < demand.at and t not in read_later)
            read_later.update(self.lineage.external(ops))
        return found

    def _moves(self, asked: Sequence[Demand], chains: Sequence[tuple[int, ...]]) -> tuple[MemoryMove, ...]:
        drops = [Drop(self.gap_before(t, demand.at) + 1, t) for demand in asked for t in demand.wanted]
        reruns = [
            Recompute(demand.at, ops, demand.wanted)
            for demand, ops in zip(asked, chains, strict=True)
            if demand.wanted
        ]
        return (*sorted(drops, key=lambda drop: (drop.at, drop.tensor)), *reruns)
