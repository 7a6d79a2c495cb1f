"""The search over plans for several devices: closed forms for all, the simulator for the best, one chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from experiments.advisor.ask import Ask
from experiments.advisor.cluster.candidates import Candidate
from experiments.advisor.cluster.choice import Choice, choose
from experiments.advisor.cluster.ideas import PlanFigures, Rejected, misfits, other_sizes, rejections
from experiments.advisor.cluster.reasons import PlanReason, reasons
from experiments.advisor.cluster.shortlist import shortlist
from experiments.advisor.cluster.space import Space, resolve_workload, spaces
from experiments.advisor.cluster.trials import PlanTrial, simulate_in_turn
from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, forward_only, part, silent
from experiments.core.spec import Workload
from experiments.core.units import human


@dataclass(frozen=True)
class ClusterAdvice:
    """All that was looked at: ``spaces`` in closed form, ``trials`` of them simulated."""

    ask: Ask
    workload: Workload
    spaces: tuple[Space, ...]
    trials: tuple[PlanTrial, ...]

    @cached_property
    def choice(self) -> Choice | None:
        """The answer; ``None`` where nothing fits."""
        return choose(self.trials, self.ask.goal, self.ask.capacity, self.ask.margin)

    @property
    def allowed(self) -> float:
        """Bytes of a device that leave the margin free."""
        return (1 - self.ask.margin) * self.ask.capacity

    @property
    def looked_at(self) -> int:
        """Plans with figures."""
        return sum(len(space.places) for space in self.spaces)

    @property
    def reasons(self) -> list[PlanReason]:
        chosen = self._chosen
        return reasons(self._space(chosen), chosen.candidate, self.ask.capacity)

    @property
    def rejected(self) -> list[Rejected]:
        chosen = self._chosen
        space = self._space(chosen)
        own = rejections(space, chosen.candidate, self.ask.goal, self.ask.capacity, self.allowed)
        figures = PlanFigures(chosen.candidate.nodes, chosen.seconds, chosen.price)
        return [*own, *other_sizes(self.spaces, figures, self.allowed)]

    def fastest_misfits(self) -> list[Candidate]:
        """The fastest plan of each idea that does not fit, by closed form, on all nodes."""
        return misfits(self.spaces[0], self.ask.capacity)

    @property
    def _chosen(self) -> PlanTrial:
        assert self.choice is not None
        return self.choice.chosen

    def _space(self, trial: PlanTrial) -> Space:
        return next(space for space in self.spaces if space.nodes == trial.candidate.nodes)

    def refuse_misfits(self) -> None:
        """Raise ``Infeasible`` where nothing fits: by how much the leanest plan misses."""
        if self.choice is not None:
            return
        figures = [space.found.peak_memory[place] for space in self.spaces for place in space.places]
        if not figures:
            why = "no combination of degrees divides devices, heads, blocks and samples"
            raise Infeasible(why, self.ask.cluster.name)
        least, capacity = float(min(figures)), self.ask.capacity
        sizes = f"{human(least, 'bytes')} of {human(capacity, 'bytes')} a device"
        missing = max(least - capacity, 0.0)
        raise Infeasible(f"nothing fits: the leanest plan needs {sizes}", self.ask.cluster.name, missing)


def advise_on_cluster(ask: Ask, progress: Progress = silent) -> ClusterAdvice:
    """Look at every plan in closed form, and simulate the best of them."""
    progress = forward_only(progress)
    workload = resolve_workload(ask)
    found = tuple(spaces(ask, workload, part(progress, 0.0, 0.3)))
    allowed = (1 - ask.margin) * ask.capacity
    candidates = shortlist(found, ask.goal, ask.capacity, allowed)
    trials = tuple(simulate_in_turn(ask, workload, candidates, part(progress, 0.3, 1.0)))
    progress(1.0, "done")
    return ClusterAdvice(ask, workload, found, trials)
