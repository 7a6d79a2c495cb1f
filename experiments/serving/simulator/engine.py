"""The engine of batches: arrivals, passes that an executor carries out, tokens put out, memory given back.

At each time all passes that end are applied first, then all arrivals, then the policy is asked until the
engine is full or the policy waits. Equal arrivals keep the order of the trace.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments.core.errors import ImpossiblePlan
from experiments.core.events import EventQueue
from experiments.core.progress import Progress, silent
from experiments.serving.interface import (
    Batch,
    Engine,
    Iteration,
    Served,
    ServingPlan,
    ServingPolicy,
    ServingView,
    Wait,
    batch_fault,
)
from experiments.serving.interface.executor import BatchExecutor
from experiments.serving.simulator.priced import PricedBatches
from experiments.workloads.requests import RequestTrace

END, ARRIVAL, ASK = 0, 1, 2


class ServingEvent(NamedTuple):
    """A request for an arrival; the batch and the end of each of its passes for an end."""

    kind: int
    request: int = -1
    batch: Batch | None = None
    ends: tuple[float, ...] = ()


def simulate(
    trace: RequestTrace,
    engine: Engine,
    policy: ServingPolicy,
    progress: Progress = silent,
    executor: BatchExecutor | None = None,
) -> ServingPlan:
    """Serve all requests of ``trace`` and return what became of each; without ``executor`` by the cost."""
    return BatchEngine(trace, engine, policy, progress, executor).run()


class BatchEngine:
    """The state of one run. ``output`` is the truth that policies may not see unless they declare it."""

    def __init__(
        self,
        trace: RequestTrace,
        engine: Engine,
        policy: ServingPolicy,
        progress: Progress = silent,
        executor: BatchExecutor | None = None,
    ) -> None:
        count = len(trace)
        self.engine, self.progress = engine, progress
        self.scheduler = policy.begin(engine)
        self.capacity = policy.batches_in_flight(engine)
        self.holds, self.early = policy.holds_answers, policy.early_answers
        self.view = ServingView.of(trace, policy.sees)
        self.output: list[int] = trace.output.tolist()
        self.executor = executor or PricedBatches(engine, self.output)
        self.admitted, self.first, self.last, self.answered = ([math.nan] * count for _ in range(4))
        self.slots = [0] * count
        self.rejected: dict[int, str] = {}
        self.batches_in_flight = 0
        self.passes = 0
        self.iterations: list[Iteration] = []
        self.gaps = array("d")
        self.events: EventQueue[ServingEvent] = EventQueue()
        self.left = count

    def run(self) -> ServingPlan:
        for request, arrival in enumerate(self.view.arrival):
            self.events.push(arrival, ServingEvent(ARRIVAL, request), ARRIVAL)
        while self.events:
            self._advance()
            self._ask()
        served = tuple(self._served(request) for request in range(len(self.output)))
        beyond, seconds = self.executor.beyond or (None, 0.0)
        gaps = memoryview(self.gaps)
        return ServingPlan(served, tuple(self.iterations), gaps, self.passes, None, beyond, seconds)

    def _served(self, request: int) -> Served:
        return Served(
            request,
            self.admitted[request],
            self.first[request],
            self.last[request],
            self.answered[request],
            self.slots[request],
            self.view.computed[request],
            request in self.rejected,
            self.rejected.get(request, ""),
        )

    def _advance(self) -> None:
        now, view = self.events.peek(), self.view
        assert now is not None
        self.executor.reach(now)
        while self.events.peek() == now:
            view.now, event = self.events.pop()
            if event.kind == ARRIVAL:
                self._arrive(event.request)
            elif event.batch is not None:
                self._finish(event.batch, event.ends)

    def _arrive(self, request: int) -> None:
        """It waits, unless the model cannot take it at all."""
        view = self.view
        if why := self.engine.refusal(view.prompt[request], self.output[request]):
            self.rejected[request] = why
            self.left -= 1
        else:
            view.waiting[request] = None
            view.arrived += (request,)
        if request == len(self.output) - 1:
            view.trace_ended = None if view.trace_ended is None else True

    def _ask(self) -> None:
        """Fill the engine: one question for each batch that it can still take."""
        while self.batches_in_flight < self.capacity:
            decision = self.scheduler.next_batch(self.view)
            self._settle(decision)
            self.view.arrived = ()
            if isinstance(decision, Wait):
                if decision.until is not None and decision.until > self.view.now:
                    self.events.push(decision.until, ServingEvent(ASK), ASK)
                return
            self._launch(decision)

    def _settle(self, decision: Batch | Wait) -> None:
        """Carry out answers and refusals, then admissions."""
        for request in decision.answer:
            if request not in self.view.running or not self.view.finished[request]:
                raise self._illegal(request, "is answered but has not finished")
            self._answer(request)
        for request in decision.reject:
            if request not in self.view.waiting:
                raise self._illegal(request, "is rejected but does not wait")
            del self.view.waiting[request]
            self.rejected[request] = "the policy has no memory for it"
            self.left -= 1
        for request, slots in decision.admit if isinstance(decision, Batch) else ():
            self._admit(request, slots)

    def _illegal(self, request: int, what: str) -> ImpossiblePlan:
        return ImpossiblePlan([f"request {request} at t={self.view.now:g} s: {what}"])

    def _admit(self, request: int, slots: int) -> None:
        view = self.view
        if request not in view.waiting:
            raise self._illegal(request, "is admitted but does not wait")
        if slots < 1:
            raise self._illegal(request, f"is admitted with {slots} slots")
        view.kv_reserved += slots
        if view.kv_reserved > self.engine.kv_slots:
            over = f"{view.kv_reserved} of {self.engine.kv_slots} KV slots"
            raise self._illegal(request, f"is admitted with {slots} slots: {over} would be reserved")
        del view.waiting[request]
        view.running[request] = slots
        self.slots[request], self.admitted[request] = slots, view.now

    def _answer(self, request: int) -> None:
        self.view.kv_reserved -= self.view.running.pop(request)
        self.answered[request] = self.last[request] if self.early else self.view.now
        self.left -= 1
        if self.left % 256 == 0:
            count = len(self.output)
            self.progress(1 - self.left / count, f"{count - self.left:,} of {count:,} requests")

    def _launch(self, batch: Batch) -> None:
        view = self.view
        if fault := batch_fault(batch):
            raise ImpossiblePlan([f"batch at t={view.now:g} s: {fault}"])
        self._refuse_unrunnable(batch)
        if batch.repeat and self.capacity > 1:
            batch = replace(batch, repeat=False)
        before = self._beyond
        ends = self.executor.ends(view, batch, self._next_event())
        view.in_flight.update(batch.requests)
        self.batches_in_flight += 1
        self.passes += len(ends)
        log = (view.now, ends[-1], len(batch.requests), sum(batch.tokens), len(ends), view.kv_reserved)
        self.iterations.append(Iteration(*log, self._beyond - before))
        self.events.push(ends[-1], ServingEvent(END, batch=batch, ends=ends), END)

    @property
    def _beyond(self) -> int:
        """Passes that were priced beyond what was measured, until now."""
        return self.executor.beyond[0] if self.executor.beyond else 0

    def _refuse_unrunnable(self, batch: Batch) -> None:
        """Raise ``ImpossiblePlan`` for a request that is not there to be run, or charged for less than it
        attends to.
        """
        view = self.view
        for request, tokens, context in zip(batch.requests, batch.tokens, batch.contexts, strict=True):
            if request not in view.running or request in view.in_flight:
                raise self._illegal(request, "runs but is not admitted, or is inside a batch already")
            if tokens < 1:
                raise self._illegal(request, f"runs with {tokens} tokens")
            if context < view.computed[request]:
                seen = view.computed[request]
                raise self._illegal(request, f"runs with a context of {context} tokens and has {seen}")

    def _next_event(self) -> float:
        time = self.events.peek()
        return math.inf if time is None else time

    def _finish(self, batch: Batch, ends: tuple[float, ...]) -> None:
        self.batches_in_flight -= 1
        self.view.in_flight.difference_update(batch.requests)
        gaps = array("d", np.diff(ends).tobytes()) if len(ends) > 1 else array("d")
        finished = self.view.finished
        for request, tokens in zip(batch.requests, batch.tokens, strict=True):
            if not finished[request]:
                self._progress_request(request, tokens, ends, gaps)

    def _progress_request(
        self, request: int, tokens: int, ends: tuple[float, ...], gaps: array[float]
    ) -> None:
        """Tokens computed are those that exist: padding is not progress. The last one known gives the next
        one, in the first of the passes or in a later one; ``gaps`` are those between the ends.
        """
        view, generated = self.view, self.view.generated[request]
        known = view.prompt[request] + generated
        before = -(-(known - view.computed[request]) // tokens) - 1
        if before >= len(ends):
            view.computed[request] += tokens * len(ends)
            return
        ends, gaps = ends[before:], gaps[before:]
        made, left = len(ends), self.output[request] - generated
        if made > left:
            made, gaps = left, gaps[: left - 1]
        view.computed[request] = known + made - 1
        if generated:
            self.gaps.append(ends[0] - self.last[request])
        else:
            self.first[request] = ends[0]
        self.gaps.extend(gaps)
        self.last[request] = ends[made - 1]
        view.generated[request] = generated + made
        if made == left:
            view.finished[request] = True
            if not self.holds:
                self._answer(request)
