"""The record of a run on several instances: every pass, what was lost, what was priced as a guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.serving.interface import Iteration, ServingPlan
from experiments.serving.interface.ledger import RequestLedger
from experiments.serving.interface.phases import InstancePass, InstanceView, KvCopy, PhasePlan
from experiments.serving.simulator.phases.flight import Flight
from experiments.serving.simulator.phases.instance import InstanceRun
from experiments.serving.simulator.phases.rotation import Turns


@dataclass
class PhaseRecord:
    """``beyond`` of the ``steps``, of so many seconds, were priced outside what was measured."""

    views: Sequence[InstanceView]
    passes: list[InstancePass] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    steps: int = 0
    recomputed: int = 0
    preemptions: int = 0
    beyond: int = 0
    seconds_beyond: float = 0.0

    def note(self, view: InstanceView) -> None:
        """Count what was taken back in a fill."""
        self.recomputed += view.recomputed
        self.preemptions += len(view.preempted)

    def add(self, run: InstanceRun, flight: Flight) -> None:
        """Book passes that have left an instance."""
        load, view = flight.load, run.view
        end, steps = float(flight.ends[-1]), len(flight.ends)
        row = (view.place, flight.start, flight.free, end, load.prefill, load.decodes, steps, view.pool.used)
        self.passes.append(InstancePass(*row))
        self._count(run, flight)

    def add_turns(self, run: InstanceRun, turns: Sequence[Turns], ledger: RequestLedger) -> None:
        """Book the passes of micro-batches that took turns, and their tokens: one row of the instance."""
        through = [(one.landed, one.busy) for one in turns if one.landed is not None]
        if not through:
            return
        flights = [flight for flight, _ in through]
        steps = [len(flight.ends) for flight in flights]
        start, end = min(one.start for one in flights), max(float(one.ends[-1]) for one in flights)
        free = min(start + sum(busy for _, busy in through), end)
        decodes = sum(one.load.decodes * count for one, count in zip(flights, steps, strict=True))
        mean, view = round(decodes / sum(steps)), run.view
        self.passes.append(InstancePass(view.place, start, free, end, 0, mean, sum(steps), view.pool.used))
        for flight in flights:
            self._count(run, flight)
            requests = [entry.request for entry in flight.entries]
            ledger.give_tokens(requests, float(flight.ends[0]), float(flight.ends[-1]))
            ledger.repeat_gaps(flight.ends, len(requests))

    def _count(self, run: InstanceRun, flight: Flight) -> None:
        load, steps, end = flight.load, len(flight.ends), float(flight.ends[-1])
        used = sum(one.pool.used * one.pool.size for one in self.views)
        beyond = run.price.steps_beyond(load, steps)
        row = (flight.start, end, load.sequences, load.tokens, steps, used, beyond)
        self.iterations.append(Iteration(*row))
        self.steps += steps
        if beyond:
            self.beyond += beyond
            within = float(flight.ends[steps - beyond - 1]) if beyond < steps else flight.start
            self.seconds_beyond += end - within

    def plan(self, ledger: RequestLedger, computed: Sequence[int], copies: Sequence[KvCopy]) -> PhasePlan:
        """Return all that happened."""
        serving = ServingPlan(
            ledger.served(self.views[0].pool.size, computed.__getitem__),
            tuple(sorted(self.iterations)),
            memoryview(ledger.gaps),
            self.steps,
            extrapolated_seconds=self.seconds_beyond,
        )
        return PhasePlan(
            tuple(view.instance for view in self.views),
            tuple(view.pool.total for view in self.views),
            serving,
            tuple(self.passes),
            tuple(copies),
            self.recomputed,
            self.preemptions,
            ledger.preempted,
            self.beyond,
            sum(view.pool.used for view in self.views),
        )
