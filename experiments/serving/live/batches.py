"""Batches of policies that reserve slots carried out by torch, padding included.

A prompt is padded by tokens that are computed for nothing; a request of a batch that has its answer goes on
with such tokens until the policy lets it go. A context is padded by tokens that are read and masked.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.serving.interface import Batch, ServingView
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.live.model import PagedGpt, Row, choose
from experiments.serving.live.wall_clock import WallClock
from experiments.workloads.requests import RequestTrace


class TorchBatches:
    """Carries batches out in ``slots`` tokens of KV memory; requests come by ``clock``.

    ``timed`` are the loads of its passes, and when each began and ended.
    """

    def __init__(
        self,
        trace: RequestTrace,
        model: PagedGpt,
        slots: int,
        prompts: Sequence[Sequence[int]],
        clock: WallClock | None = None,
    ) -> None:
        self.model, self.memory = model, model.memory(slots, 1)
        self.beyond: tuple[int, float] | None = None
        self.clock = clock or WallClock()
        self.reach = self.clock.reach
        self.tokens = [list(ids) for ids in prompts]
        self.total: list[int] = (trace.prompt + trace.output).tolist()
        self.prompts: list[int] = trace.prompt.tolist()
        self.computed = [0] * len(self.total)
        self.held: dict[int, list[int]] = {}
        self.timed: list[tuple[StepLoad, float, float]] = []
        self._free = list(range(slots))

    @property
    def answers(self) -> list[list[int]]:
        """The tokens that every request was answered with."""
        return [ids[prompt:] for ids, prompt in zip(self.tokens, self.prompts, strict=True)]

    def ends(self, view: ServingView, batch: Batch, until: float) -> tuple[float, ...]:
        self._hold(view)
        found: list[float] = []
        while not found or self._goes_on(batch, found, until):
            for chunk in batch.micro_batches:
                self._compute(batch, chunk, len(found))
            found.append(self.clock.now)
        return tuple(found)

    def _goes_on(self, batch: Batch, found: Sequence[float], until: float) -> bool:
        if not batch.repeat:
            return len(found) < batch.steps
        return found[-1] < until and not any(map(self._is_answered, batch.requests))

    def _is_answered(self, request: int) -> bool:
        return len(self.tokens[request]) == self.total[request]

    def _hold(self, view: ServingView) -> None:
        """Slots of those that left come back, and those that were admitted get theirs."""
        for request in self.held.keys() - view.running.keys():
            self._free += self.held.pop(request)
        for request, slots in view.running.items():
            if request not in self.held:
                self.held[request] = [self._free.pop() for _ in range(slots)]

    def _compute(self, batch: Batch, chunk: slice, before: int) -> None:
        requests = batch.requests[chunk]
        tokens, contexts = batch.tokens[chunk], batch.contexts[chunk]
        entries = [Entry(r, t, c + before) for r, t, c in zip(requests, tokens, contexts, strict=True)]
        rows = [self._row(*entry) for entry in entries]
        chosen = choose(self.model.run(rows, self.memory))
        self.timed.append((StepLoad.of(entries), *self.clock.end_step()))
        for request, row, ids in zip(requests, rows, chosen, strict=True):
            if not self._is_answered(request):
                self.computed[request] += len(row.ids) - row.padding
                self.tokens[request] += ids

    def _row(self, request: int, count: int, context: int) -> Row:
        held, ids, done = self.held[request], self.tokens[request], self.computed[request]
        if self._is_answered(request):
            return Row([0] * count, min(context, len(held) - count), held, 0, count)
        real = min(count, len(ids) - done)
        padding = count - real
        wanted = int(done + real == len(ids))
        masked = max(0, min(context, len(held) - count) - done)
        return Row([*ids[done : done + real], *[0] * padding], done, held, wanted, padding, masked)
