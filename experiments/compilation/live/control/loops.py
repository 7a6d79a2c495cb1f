"""The forms of a loop. All take ``(invariants, state)`` and give the last state, as ``Loop`` does."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.compilation.interface.control import chunks
from experiments.compilation.live.control.host import run_by_host
from experiments.models.control.constructs import Loop, State


class Chunk(nn.Module):
    """``trips`` trips in one piece; those after the condition has failed keep the state."""

    def __init__(self, loop: Loop, trips: int) -> None:
        super().__init__()
        self.body, self.condition, self.trips = loop.body, loop.condition, trips

    def forward(self, first: Tensor, invariants: State, state: State) -> State:
        for trip in range(self.trips):
            made = self.body(first + trip, *invariants, *state)
            if self.condition is not None:
                goes_on = self.condition(*state)
                made = tuple(torch.where(goes_on, new, old) for new, old in zip(made, state, strict=True))
            state = made
        return state


class UnrolledLoop(nn.Module):
    """Whole groups of ``factor`` trips from one graph, then one group of those left.

    The host asks in between.

    Groups for ``trips`` are made beforehand, others when they are met.
    """

    def __init__(self, loop: Loop, factor: int, trips: int = 0) -> None:
        super().__init__()
        self.loop, self.factor = loop, factor
        self.groups = nn.ModuleDict()
        for size in self._sizes(trips):
            self._group(size)

    def _sizes(self, trips: int) -> list[int]:
        whole, left = chunks(trips, self.factor)
        return [self.factor] * whole + [left] * bool(left)

    def _group(self, trips: int) -> nn.Module:
        name = str(trips)
        if name not in self.groups:
            self.groups[name] = Chunk(self.loop, trips)
        return self.groups[name]

    @run_by_host
    def forward(self, invariants: State, state: State) -> State:
        for number, size in enumerate(self._sizes(self.loop.count(invariants))):
            if self.loop.condition is not None and not bool(self.loop.condition(*state)):
                break
            first = torch.tensor(number * self.factor, device=_device(invariants, state))
            state = self._group(size)(first, invariants, state)
        return state


class HostLoop(UnrolledLoop):
    """The host launches one trip after another."""

    def __init__(self, loop: Loop, trips: int = 0) -> None:
        super().__init__(loop, 1, trips)


class FullLoop(nn.Module):
    """All trips in the graph around the loop.

    No trip hands its arguments out: what comes back is new memory.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop

    def forward(self, invariants: State, state: State) -> State:
        trips = self.loop.count(invariants)
        if not trips:
            return tuple(value.clone() for value in state)
        first = torch.zeros((), dtype=torch.int64, device=_device(invariants, state))
        return Chunk(self.loop, trips)(first, invariants, state)  # type: ignore[no-any-return]


class WhileLoop(nn.Module):
    """One op of the graph that loops. The state is copied first: an op may not hand out its arguments."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop

    def forward(self, invariants: State, state: State) -> State:
        trips = self.loop.count(invariants)

        def goes_on(step: Tensor, *now: Tensor) -> Tensor:
            inside = step < trips
            return inside if self.loop.condition is None else inside & self.loop.condition(*now)

        def trip(step: Tensor, *now: Tensor) -> State:
            made = self.loop.body(step, *invariants, *now)
            return (step + 1, *(value.contiguous() for value in made))

        first = torch.zeros((), dtype=torch.int64, device=_device(invariants, state))
        last = torch.while_loop(goes_on, trip, (first, *(value.clone() for value in state)))
        return tuple(last[1:])


def _device(invariants: State, state: State) -> torch.device:
    return (*state, *invariants)[0].device
