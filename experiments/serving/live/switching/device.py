"""A device that carries out what a sharing policy says, one request after another.

Times are of the host: from when a request comes until its answer is there. Training goes on between
requests; its launches, layer by layer in a plan, are the trainer's own, which stops where a launch would end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from experiments.serving.interface.sharing import (
    Action,
    Copy,
    Evict,
    Hold,
    HostCosts,
    Kill,
    Launch,
    Operator,
    SharedDevice,
    SharedModel,
    Sharer,
    SharingPolicy,
    SharingView,
)
from experiments.serving.interface.sharing_plan import CopySpan, SharedRequest, SharingPlan, Span
from experiments.serving.live.switching.layers import LayeredModel, Mark, new_stream
from experiments.serving.live.switching.passes import GatedPasses
from experiments.serving.live.switching.trainer import Trainer

ASKED, TRAINED = 0, 1
#: Seconds that training gets between two requests after an iteration, stops that tell what cleaning up
#: takes, and iterations that are timed.
PAUSE, CLEANINGS, TIMED = 0.2, 5, 5


@dataclass
class _Turn:
    """What the device does for one request; ``copies`` are on their way, in order."""

    view: SharingView
    began: float
    copies: list[tuple[int, int, Mark, float]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    copied: list[CopySpan] = field(default_factory=list)


class SwitchingDevice:
    """The asked model, the trained one, and what the host was measured to take for them."""

    def __init__(self, asked: LayeredModel, trained: LayeredModel) -> None:
        self.asked, self.trained = asked, trained
        self.passes, self.trainer = GatedPasses(asked), Trainer(trained)
        self.lane, self.back = new_stream(asked.on_cuda), new_stream(asked.on_cuda)
        bandwidth, call = asked.copy_costs()
        memory = 2.0 * (len(asked.region) + len(trained.region))
        self.device = SharedDevice(1, memory, bandwidth, call)

    def models(self) -> tuple[SharedModel, SharedModel]:
        """Return both by layers, timed; those of training, forward and backward, take the same each."""
        seconds = self.asked.layer_seconds()
        asked = [
            Operator(s, layer.end - layer.begin) for s, layer in zip(seconds, self.asked.layers, strict=True)
        ]
        count = 2 * len(self.trained.layers)
        each = self._iteration_seconds() / count
        sizes = [(layer.end - layer.begin) / 2 for layer in self.trained.layers for _ in range(2)]
        trained = [Operator(each, size) for size in sizes]
        return (
            SharedModel("asked", "real_time", tuple(asked)),
            SharedModel("trained", "training", tuple(trained)),
        )

    def _iteration_seconds(self) -> float:
        self.trainer.resume()
        time.sleep(PAUSE)
        before, begin = self.trainer.iterations, time.perf_counter()
        self.trainer.await_iterations(before + TIMED)
        took = (time.perf_counter() - begin) / (self.trainer.iterations - before)
        self.trainer.stop()
        self.trainer.clean()
        return took

    def costs(self) -> HostCosts:
        """Return what cleaning up after a stopped iteration takes here."""
        found = []
        for _ in range(CLEANINGS):
            self.trainer.resume()
            time.sleep(PAUSE)
            self.trainer.stop()
            begin = time.perf_counter()
            self.trainer.clean()
            found.append(time.perf_counter() - begin)
        return HostCosts(clean=sorted(found)[len(found) // 2])

    def serve(self, policy: SharingPolicy, models: Sequence[SharedModel], requests: int) -> SharingPlan:
        """Ask so often while the other model trains, and report what happened."""
        sharer = policy.begin(self.device, models)
        resident = policy.starts_resident(models[ASKED])
        began, done = time.perf_counter(), self.trainer.iterations
        asked: list[SharedRequest] = []
        spans: list[Span] = []
        copies: list[CopySpan] = []
        for _ in range(requests):
            if not resident:
                self.asked.clear()
            self.trainer.resume()
            self.trainer.await_iterations(self.trainer.iterations + 1)
            time.sleep(PAUSE)
            turn = self._turn(models, began, resident)
            request = SharedRequest(ASKED, time.perf_counter() - began, found_idle=False)
            self.trainer.stop()
            self._answer(sharer, turn, request)
            asked.append(request)
            spans, copies = [*spans, *turn.spans], [*copies, *turn.copied]
            self._bring_back(sharer, turn)
        passes = (requests, self.trainer.iterations - done)
        end = time.perf_counter() - began
        return SharingPlan(tuple(asked), tuple(spans), tuple(copies), passes, end)

    def serve_alone(self, requests: int) -> SharingPlan:
        """Answers of a model that is there, on an idle device."""
        began, asked = time.perf_counter(), []
        for _ in range(requests):
            request = SharedRequest(ASKED, time.perf_counter() - began)
            request.started = request.arrival
            self.passes.release(len(self.asked.layers))
            self._end_pass()
            request.answered = time.perf_counter() - began
            asked.append(request)
        return SharingPlan(tuple(asked), (), (), (requests, 0), time.perf_counter() - began)

    def _turn(self, models: Sequence[SharedModel], began: float, resident: bool) -> _Turn:
        there = [len(models[ASKED].operators) if resident else 0, len(models[TRAINED].operators)]
        zeros = [0, 0]
        view = SharingView([*zeros], [*zeros], there, [*there], [*zeros], 1)
        view.waiting = [ASKED]
        return _Turn(view, began)

    def _answer(self, sharer: Sharer, turn: _Turn, request: SharedRequest) -> None:
        """Ask the policy until the pass is made; where it has nothing to say, the next copy is waited for."""
        view = turn.view
        count = len(self.asked.layers)
        while view.position[ASKED] < count:
            view.now = time.perf_counter() - turn.began
            actions: Sequence[Action] = sharer.act(view)
            for action in actions:
                self._do(action, turn, request)
            if not actions:
                self._await_copy(turn)
        self._end_pass()
        request.answered = time.perf_counter() - turn.began
        view.waiting.clear()
        view.position[ASKED] = 0

    def _end_pass(self) -> None:
        """Return when the answer is there."""
        if self.passes.stream is not None:
            self.passes.stream.synchronize()
        self.passes.begin_next()

    def _do(self, action: Action, turn: _Turn, request: SharedRequest) -> None:
        view = turn.view
        now = time.perf_counter() - turn.began
        match action:
            case Launch(model, first, last) if model == ASKED:
                request.started = now if request.started is None else request.started
                self.passes.release(last)
                view.position[ASKED] = last
                turn.spans.append(Span(ASKED, first, now, time.perf_counter() - turn.began, 1, False))
            case Copy(model, last) if model == ASKED:
                self._fetch(last, turn, now)
            case Evict(model) if model == TRAINED:
                with torch.cuda.stream(self.back):
                    self.trained.keep()
                view.resident[TRAINED] = view.copied[TRAINED] = 0
            case Kill(model, _) if model == TRAINED:
                request.is_switch = True
            case Hold():
                self.trainer.clean()

    def _fetch(self, last: int, turn: _Turn, now: float) -> None:
        first = turn.view.copied[ASKED]
        with torch.cuda.stream(self.lane):
            self.asked.fetch(first, last)
            turn.copies.append((first, last, Mark(self.asked.on_cuda), now))
        turn.view.copied[ASKED] = last

    def _await_copy(self, turn: _Turn) -> None:
        if not turn.copies:
            raise RuntimeError("the policy waits for nothing")
        first, last, mark, issued = turn.copies.pop(0)
        mark.wait()
        turn.view.resident[ASKED] = last
        ended = time.perf_counter() - turn.began
        turn.copied.append(CopySpan(ASKED, issued, ended, float(self.asked.bytes_of(first, last))))

    def _bring_back(self, sharer: Sharer, turn: _Turn) -> None:
        """The policy turns to training again; the trained weights come back first, if they left."""
        sharer.act(turn.view)
        self.trainer.clean()
        if turn.view.copied[TRAINED] == 0 and self.lane is not None and self.back is not None:
            self.back.synchronize()
            with torch.cuda.stream(self.lane):
                self.trained.fetch(0, len(self.trained.layers))
            self.lane.synchronize()

    def close(self) -> None:
        self.trainer.close()
        self.passes.close()
