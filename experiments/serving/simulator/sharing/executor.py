"""Executes what a sharing policy says on one device: clock, compute units, memory and one copy channel."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Sequence

from experiments.core.progress import Progress, silent
from experiments.serving.interface.sharing import (
    Action,
    Copy,
    Evict,
    Hold,
    Kill,
    Launch,
    Move,
    SharedDevice,
    SharedModel,
    Sharer,
    SharingView,
)
from experiments.serving.interface.sharing_plan import CopySpan, SharedRequest, SharingPlan, Span

#: A policy that acts so often at one moment does not let time pass.
MOST_ACTIONS = 100_000
REPORT_EVERY = 4096
#: Share of the memory by which sums of bytes may be over.
ROUNDING = 1e-9


class ImpossibleAction(Exception):
    """No device could do what the policy says."""


def share(
    device: SharedDevice,
    models: Sequence[SharedModel],
    resident: Sequence[bool],
    sharer: Sharer,
    arrivals: Sequence[tuple[float, int]],
    duration: float,
    progress: Progress = silent,
    closed: Collection[int] = (),
) -> SharingPlan:
    """Run until ``duration`` and until every request is answered.

    ``arrivals`` are (time, model), ascending; ``resident`` says whose weights are there at the beginning;
    models that are ``closed`` are asked again, before ``duration``, whenever they have answered.
    """
    executor = _Executor(device, models, resident, sharer, duration, closed)
    return executor.run(arrivals, progress)


class _Executor:
    def __init__(
        self,
        device: SharedDevice,
        models: Sequence[SharedModel],
        resident: Sequence[bool],
        sharer: Sharer,
        duration: float,
        closed: Collection[int] = (),
    ) -> None:
        self.device, self.models, self.sharer, self.duration = device, models, sharer, duration
        self.closed = closed
        there = [len(one.operators) if has else 0 for one, has in zip(models, resident, strict=True)]
        zeros = [0] * len(models)
        self.view = SharingView([*zeros], [*zeros], there, [*there], [*zeros], device.units)
        self.view.need, self.view.on_host = [model.bytes for model in models], [0.0] * len(models)
        self.tells_peaks = any(model.peaks for model in models)
        self.order = itertools.count()
        self.events: list[tuple[float, int, object]] = []
        self._at(0.0, None)
        self._at(duration, None)
        self.starts: dict[int, float] = {}
        self.waiting: list[SharedRequest] = []
        self.preparing = 0
        self.requests: list[SharedRequest] = []
        self.spans: list[Span] = []
        self.copies: list[CopySpan] = []
        self.channel_free, self.held = 0.0, 0.0
        self.last_model: int | None = None
        self.epoch = [0] * len(models)

    def run(self, arrivals: Sequence[tuple[float, int]], progress: Progress) -> SharingPlan:
        for time, model in arrivals:
            self._at(time, SharedRequest(model, time))
        fault = ""
        try:
            for turn in itertools.count():
                if not self.events or self._is_over():
                    break
                self._advance()
                self._ask()
                if turn % REPORT_EVERY == 0:
                    progress(min(1.0, self.view.now / self.duration), "sharing the device")
        except ImpossibleAction as impossible:
            fault = f"at {self.view.now:g} s: {impossible}"
        for model in tuple(self.view.running):
            self._end(model, killed=True)
        passes = tuple(self.view.passes)
        return SharingPlan(
            tuple(self.requests), tuple(self.spans), tuple(self.copies), passes, self.view.now, fault
        )

    def _is_over(self) -> bool:
        return self.view.now >= self.duration and not self.waiting and not self.preparing

    def _at(self, time: float, what: object) -> None:
        heapq.heappush(self.events, (time, next(self.order), what))

    def _advance(self) -> None:
        """Let everything happen that happens next, at one moment."""
        self.view.now = now = self.events[0][0]
        while self.events and self.events[0][0] <= now:
            self._happen(heapq.heappop(self.events)[2])

    def _happen(self, what: object) -> None:
        match what:
            case SharedRequest(prepared=None):
                self._arrive(what)
            case SharedRequest():
                self.preparing -= 1
                self._reach_device(what)
            case (int(model), int(epoch)) if self.epoch[model] == epoch and model in self.view.running:
                self._end(model, killed=False)
            case Copy(model, last, _) if last <= self.view.copied[model]:
                self.view.resident[model] = max(self.view.resident[model], last)
            case Move(model, size, _):
                self.view.moving -= 1
                self.view.on_host[model] += max(0.0, size)

    def _arrive(self, request: SharedRequest) -> None:
        self.requests.append(request)
        seconds = self.models[request.model].preprocess
        request.prepared = request.arrival + seconds
        if seconds:
            self.preparing += 1
            self._at(request.prepared, request)
        else:
            self._reach_device(request)

    def _reach_device(self, request: SharedRequest) -> None:
        request.found_idle = not any(not self.models[one].is_real_time for one in self.view.running)
        request.found_idle = request.found_idle or bool(self.waiting)
        self.waiting.append(request)
        self.view.waiting.append(request.model)

    def _ask(self) -> None:
        """Ask for actions until there are none; a held device is not asked."""
        for _ in range(MOST_ACTIONS):
            if self.view.now < self.held:
                return
            actions = self.sharer.act(self.view)
            if not actions:
                return
            for action in actions:
                self._do(action)
        raise ImpossibleAction("the policy acts for ever at one moment")

    def _do(self, action: Action) -> None:
        view = self.view
        match action:
            case Launch():
                self._launch(action)
            case Copy():
                self._copy(action)
            case Kill(model, restart):
                if not 0 <= restart <= view.position[model]:
                    raise ImpossibleAction(f"{self.models[model].name} is to go on at operator {restart}")
                if model in view.running:
                    self._end(model, killed=True)
                view.offset[model] = view.offset[model] if restart == view.position[model] else 0
                view.position[model] = restart
            case Evict(model):
                view.resident[model] = view.copied[model] = 0
            case Hold(seconds):
                self.held = view.now + seconds
                self._at(self.held, None)
            case Move():
                self._move(action)
        if self.tells_peaks:
            self._check_peaks()

    def _launch(self, launch: Launch) -> None:
        view, name = self.view, self.models[launch.model].name
        if launch.model in view.running or view.now < self.held:
            raise ImpossibleAction(f"{name} runs already or the device is held")
        if not 0 < launch.units <= view.free_units:
            raise ImpossibleAction(f"{name} wants {launch.units} of {view.free_units} free units")
        if launch.first != view.position[launch.model] or launch.last > view.resident[launch.model]:
            raise ImpossibleAction(f"{name} wants operators {launch.first} to {launch.last} out of turn")
        if launch.last <= launch.first or not launch.seconds >= 0:
            raise ImpossibleAction(f"{name} is to run nothing")
        if launch.first == 0 and self.tells_peaks:
            self._begin_pass(launch.model)
        view.running[launch.model] = launch
        view.free_units -= launch.units
        self.starts[launch.model] = view.now
        self._at(view.now + launch.seconds, (launch.model, self.epoch[launch.model]))
        self._note_start(launch.model)

    def _begin_pass(self, model: int) -> None:
        """What a pass needs less than the one before was on the host first."""
        view = self.view
        need = self.models[model].bytes_in(view.passes[model])
        view.on_host[model] = max(0.0, view.on_host[model] - max(0.0, view.need[model] - need))
        view.need[model] = need

    def _move(self, move: Move) -> None:
        view = self.view
        there = view.need[move.model] - view.on_host[move.model]
        if move.bytes < -view.on_host[move.model] or (move.seconds > 0 and move.bytes > there):
            raise ImpossibleAction(f"{self.models[move.model].name} moves {move.bytes:g} bytes that it lacks")
        if move.seconds <= 0:
            view.on_host[move.model] += move.bytes
            return
        view.on_host[move.model] += min(0.0, move.bytes)
        start = max(view.now, self.channel_free)
        self.channel_free = start + move.seconds
        self.copies.append(CopySpan(move.model, start, self.channel_free, abs(move.bytes)))
        view.moving += 1
        self._at(self.channel_free, move)

    def _check_peaks(self) -> None:
        held = sum(self.view.need) - sum(self.view.on_host)
        if held > self.device.memory * (1 + ROUNDING):
            raise ImpossibleAction(f"{held:g} bytes of weights and passes in {self.device.memory:g}")

    def _note_start(self, model: int) -> None:
        front = next((one for one in self.waiting if one.model == model), None)
        if front is not None and front.started is None:
            front.started = self.view.now
            front.is_switch = self.last_model is not None and self.last_model != model
        self.last_model = model

    def _copy(self, copy: Copy) -> None:
        """The channel carries one copy after the other."""
        view, operators = self.view, self.models[copy.model].operators
        size = sum(operator.bytes for operator in operators[view.copied[copy.model] : copy.last])
        view.copied[copy.model] = copy.last
        held = sum(
            sum(operator.bytes for operator in model.operators[:count])
            for model, count in zip(self.models, view.copied, strict=True)
        )
        if held > self.device.memory:
            raise ImpossibleAction(f"{held:g} bytes of weights in {self.device.memory:g}")
        start = max(view.now, self.channel_free)
        self.channel_free = start + copy.seconds
        self.copies.append(CopySpan(copy.model, start, self.channel_free, size))
        self._at(self.channel_free, copy)

    def _end(self, model: int, killed: bool) -> None:
        view = self.view
        launch = view.running.pop(model)
        view.free_units += launch.units
        self.epoch[model] += 1
        span = Span(model, launch.first, self.starts[model], view.now, launch.units, killed)
        self.spans.append(span)
        if not killed:
            self._progress(launch)

    def _progress(self, launch: Launch) -> None:
        view, model = self.view, launch.model
        operators = self.models[model].operators
        done = view.offset[model] + launch.blocks
        if launch.blocks and done < operators[launch.first].blocks:
            view.offset[model] = done
            return
        view.position[model], view.offset[model] = launch.last, 0
        if launch.last == len(operators):
            view.position[model] = 0
            view.passes[model] += 1
            self._answer(model)

    def _answer(self, model: int) -> None:
        if self.models[model].is_real_time:
            place = self.view.waiting.index(model)
            del self.view.waiting[place]
            answered = self.view.now + self.models[model].postprocess
            self.waiting.pop(place).answered = answered
            if model in self.closed and answered < self.duration:
                self._ask_again(model, answered)

    def _ask_again(self, model: int, time: float) -> None:
        """A client that is answered now asks before anything else happens."""
        if time == self.view.now:
            self._arrive(SharedRequest(model, time))
        else:
            self._at(time, SharedRequest(model, time))
