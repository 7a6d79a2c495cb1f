"""A step as a chain of units, and the moves that reverse it."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.memory.interface import MemoryPlan
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.planning.reversal import Reversal
from experiments.memory.planning.segments import Forward, forward_of
from experiments.workloads.step import Step


def chain_of(step: Step, most: int = 1) -> UnitChain:
    """The chain between candidates whose border holds at most ``most`` tensors."""
    rematerializer = Rematerializer(step)
    return UnitChain(forward_of(step, rematerializer.lineage, most), rematerializer)


@dataclass(frozen=True)
class UnitChain:
    """A step as a chain of units between candidates; state i + 1 is the border after unit i."""

    forward: Forward
    rematerializer: Rematerializer

    @property
    def units(self) -> int:
        return len(self.forward.candidates) + 1

    def plan(self, reversal: Reversal, keep_last: bool) -> MemoryPlan:
        """Drops and reruns of ``reversal``; with ``keep_last`` its first turn needs no rerun."""
        candidates, loss = self.forward.candidates, self.forward.loss
        kept = {tensor for state in reversal.kept for tensor in candidates[state - 1].border}
        held = kept | self.forward.through
        ends = [candidate.op for candidate in candidates] + [loss]
        demands = []
        for turn in reversal.turns[1:] if keep_last else reversal.turns:
            first = ends[turn.start - 1] + 1 if turn.start else 0
            inside = [s for s in self.forward.saved if first <= s.produced <= ends[turn.stop - 1]]
            away = [s for s in inside if s.tensor not in held]
            if away:
                store = [tensor for state in turn.store for tensor in candidates[state - 1].border]
                at = min(saved.first_backward for saved in away)
                demands.append(Demand(at, (*(s.tensor for s in away), *store)))
        borders = {
            tensor for turn in reversal.turns for s in turn.store for tensor in candidates[s - 1].border
        }
        moves = self.rematerializer.moves_for(demands, held | borders)
        return MemoryPlan(moves, notes={"kept_after_ops": [candidates[s - 1].op for s in reversal.kept]})
