"""The event simulator of instances: prompts arrive, are computed, their KV is copied, answers come out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments.core.events import EventQueue
from experiments.core.progress import Progress, accompany
from experiments.serving.interface.blocks import BlockPool
from experiments.serving.interface.ledger import RequestLedger
from experiments.serving.interface.phases import (
    Instance,
    InstanceView,
    PhaseDispatcher,
    PhasePlan,
    PhaseView,
)
from experiments.serving.interface.refusals import over_context
from experiments.serving.simulator.paged import most_steps
from experiments.serving.simulator.phases.admission import lacking_memory
from experiments.serving.simulator.phases.copies import Fabric, KvCopies
from experiments.serving.simulator.phases.flight import Flight
from experiments.serving.simulator.phases.instance import InstanceEngine, InstanceRun
from experiments.serving.simulator.phases.record import PhaseRecord
from experiments.workloads.requests import RequestTrace

#: Order of what happens at the same moment: whoever comes can join a pass that begins then.
LANDED, COPIED, ARRIVED, FREE = range(4)
#: Events between two signs of life.
LOOKS = 64


class _Event(NamedTuple):
    """``subject``: the instance, or the request that arrives or is copied."""

    kind: int
    subject: int
    flight: Flight | None = None


class PhaseSimulation:
    """The state of one run."""

    def __init__(
        self,
        trace: RequestTrace,
        instances: Sequence[Instance],
        dispatcher: PhaseDispatcher,
        engines: Sequence[InstanceEngine],
        fabric: Fabric,
        block_size: int,
        max_batch: int,
        progress: Progress,
    ) -> None:
        self.dispatcher, self.max_batch, self.size = dispatcher, max_batch, block_size
        self.progress = progress
        self.ledger = RequestLedger(trace, progress)
        prompt, count = self.ledger.prompt, len(trace)
        self.known, self.computed = list(prompt), [0] * count
        #: The instance that answers, once KV is or will be there; of what is under way, from where and when.
        self.home: dict[int, int] = {}
        self.sent: dict[int, tuple[int, float]] = {}
        views = [
            InstanceView(
                now=0.0,
                prompt=prompt,
                known=self.known,
                computed=self.computed,
                pool=BlockPool(engine.blocks, block_size),
                keys=[()] * count,
                caching=False,
                instance=instance,
                place=place,
            )
            for place, (instance, engine) in enumerate(zip(instances, engines, strict=True))
        ]
        self.view = PhaseView(prompt, views)
        self.runs = [InstanceRun(view, e.price) for view, e in zip(views, engines, strict=True)]
        self.copies = KvCopies(fabric, instances)
        self.events: EventQueue[_Event] = EventQueue()
        self.record = PhaseRecord(views)

    def run(self, context: int | None, answers_only: bool) -> PhasePlan:
        for request, arrival in enumerate(self.ledger.arrival):
            self.events.push(arrival, _Event(ARRIVED, request), ARRIVED)
        arrive = self._arrive_done if answers_only else lambda request: self._arrive(request, context)
        does: Mapping[int, Callable[[int], None]] = {COPIED: self._copied, ARRIVED: arrive, FREE: self._free}
        looks = accompany(itertools.count(), self.progress, LOOKS)
        while self.events:
            next(looks)
            self.view.now, event = self.events.pop()
            if event.flight is not None:
                self._land(event.subject, event.flight)
            else:
                does[event.kind](event.subject)
        return self.record.plan(self.ledger, self.computed, self.copies.done)

    @property
    def now(self) -> float:
        return self.view.now

    # --- prompts --------------------------------------------------------------------------------------------

    def _arrive(self, request: int, context: int | None) -> None:
        if why := over_context(self.known[request], context) or self._lacking_memory(request):
            self.ledger.refuse(request, why)
            return
        self._count_grown()
        place = self.dispatcher.on_arrival(request, self.view)
        self.view.instances[place].enqueue(request)
        self._wake(place)

    def _lacking_memory(self, request: int) -> str:
        prompt, total = self.ledger.prompt[request], self.ledger.total[request]
        return lacking_memory(prompt, total - prompt, self.view.instances)

    def _arrive_done(self, request: int) -> None:
        """Its first token is out already."""
        if why := self._lacking_memory(request):
            self.ledger.refuse(request, why)
            return
        self.computed[request] = self.known[request]
        self.known[request] += 1
        self.ledger.admitted[request] = self.now
        self.ledger.give_tokens((request,), self.now, self.now)
        if self.known[request] == self.ledger.total[request]:
            self.ledger.answer(request, self.now, 0)
            return
        self._count_grown()
        place = self.dispatcher.on_prefilled(request, self.view)
        self.home[request] = place
        self.view.instances[place].incoming.append(request)
        self._receive(place)

    def _count_grown(self) -> None:
        for run in self.runs:
            run.view.grown = run.grown(self.now)

    # --- passes ---------------------------------------------------------------------------------------------

    def _wake(self, place: int) -> None:
        """Something came: passes alike end, and the next one is filled as soon as the first stage is free."""
        self._close(place)
        self.events.push(max(self.now, self.runs[place].free), _Event(FREE, place), FREE)

    def _close(self, place: int) -> None:
        self._stop_turns(place, self.now)
        shorter = self.runs[place].close(self.now)
        if shorter is not None:
            self.events.push(float(shorter.ends[-1]), _Event(LANDED, place, shorter), LANDED)

    def _free(self, place: int) -> None:
        run = self.runs[place]
        if run.turns is not None and self.now >= run.turns.until:
            self._stop_turns(place, math.nextafter(self.now, math.inf))
        if run.free > self.now or run.open is not None or run.turns is not None:
            return
        view = run.view
        view.begin(self.now)
        is_steady = self.dispatcher.fill(view)
        self._note(view)
        if view.entries:
            self._launch(run, is_steady)
        elif view.rejected or view.preempted:
            if view.rejected:
                self._receive(place)
            self.events.push(self.now, _Event(FREE, place), FREE)

    def _note(self, view: InstanceView) -> None:
        """What the policy did besides the entries."""
        self.ledger.note(view)
        view.due_tokens += sum(view.known[request] for request in view.preempted)
        view.due_tokens -= sum(view.known[request] for request, _ in view.rejected)
        self.record.note(view)

    def _launch(self, run: InstanceRun, is_steady: bool) -> None:
        view, place = run.view, run.view.place
        has_stages = view.instance.shape.pipeline > 1
        if has_stages:
            view.enter_pipeline()
        most = most_steps(view, view.entries, self.ledger.total) if is_steady and not has_stages else 1
        flight = run.launch(most, self.now)
        self.events.push(float(flight.ends[-1]), _Event(LANDED, place, flight), LANDED)
        if has_stages:
            self.events.push(run.free, _Event(FREE, place), FREE)
        self._copy_early(flight, view)
        if has_stages and is_steady:
            self._take_turns(run)

    def _take_turns(self, run: InstanceRun) -> None:
        """Work out what micro-batches do that are filled as they were, until something happens."""
        turns = run.take_turns(self.home, self.ledger.total)
        if turns is not None:
            self.events.push(turns.until, _Event(FREE, run.view.place), FREE)

    def _stop_turns(self, place: int, now: float) -> None:
        """Book the passes that began before ``now``; those inside the pipeline land as any other."""
        run = self.runs[place]
        if run.turns is None:
            return
        self.record.add_turns(run, run.stop_turns(now), self.ledger)
        for flight in run.inside:
            self.events.push(float(flight.ends[-1]), _Event(LANDED, place, flight), LANDED)
        self.events.push(max(self.now, run.free), _Event(FREE, place), FREE)

    def _land(self, place: int, flight: Flight) -> None:
        """Passes have left the instance."""
        if flight.has_landed:
            return
        flight.has_landed = True
        run = self.runs[place]
        if flight is run.open:
            run.close(self.now)
        if run.view.instance.shape.pipeline > 1:
            run.leave(flight)
        self.record.add(run, flight)
        run.view.due_tokens -= sum(tokens for _, tokens, context in flight.entries if not context)
        self._give_tokens(run.view, flight)
        self._receive(place)
        self.events.push(self.now, _Event(FREE, place), FREE)

    def _give_tokens(self, view: InstanceView, flight: Flight) -> None:
        first, last = float(flight.ends[0]), float(flight.ends[-1])
        for request, _, _ in flight.entries:
            self.known[request] += 1
            self.ledger.give_tokens((request,), first, last)
            if self.known[request] == self.ledger.total[request]:
                self.ledger.answer(request, last, len(view.held[request]))
                view.finish(request)
            elif self.home.get(request) != view.place:
                self._send(request, view)
        self.ledger.repeat_gaps(flight.ends, len(flight.entries))

    # --- copies ---------------------------------------------------------------------------------------------

    def _send(self, request: int, source: InstanceView) -> None:
        """Its prompt is done: on to the instance that answers, which may be the same."""
        if request not in self.home:
            self._count_grown()
            place = self.home[request] = self.dispatcher.on_prefilled(request, self.view)
            if place == source.place:
                return
            self.sent[request] = (source.place, self.now)
            self.view.instances[place].incoming.append(request)
            source.depart(request)
            self._receive(place)
        else:
            source.depart(request)

    def _receive(self, place: int) -> None:
        """KV comes in the order in which it was sent, as blocks are free for it."""
        view = self.view.instances[place]
        while view.incoming and view.resident + len(view.arriving) < self.max_batch:
            self._close(place)
            request = view.incoming[0]
            source, asked = self.sent.get(request, (-1, self.now))
            if not view.receive(request):
                return
            view.incoming.popleft()
            if source < 0:
                view.join(request)
                self._wake(place)
            else:
                end = self.copies.begin(request, source, place, self.computed[request], asked, self.now)
                self.events.push(end, _Event(COPIED, request), COPIED)

    def _copy_early(self, flight: Flight, source: InstanceView) -> None:
        """Prompts whose KV leaves layer by layer while they are computed, where its goal has room at once."""
        for request, tokens, context in flight.entries:
            goal = self.view.goal.get(request, source.place)
            if request in self.home or goal == source.place or not self.dispatcher.overlaps(tokens):
                continue
            view = self.view.instances[goal]
            if view.incoming or view.resident + len(view.arriving) >= self.max_batch:
                continue
            self._close(goal)
            if view.receive(request):
                self.home[request] = goal
                self.sent[request] = (source.place, self.now)
                done = float(flight.ends[-1])
                end = self.copies.begin_early(request, source.place, goal, context + tokens, self.now, done)
                self.events.push(end, _Event(COPIED, request), COPIED)

    def _copied(self, request: int) -> None:
        place, (source, _) = self.home[request], self.sent.pop(request)
        view = self.view.instances[place]
        self._close(place)
        if self.known[request] == self.ledger.total[request]:
            view.drop(request)
        else:
            view.join(request)
            self.view.instances[source].release(request)
        for touched in (source, place):
            self._receive(touched)
            self._wake(touched)
