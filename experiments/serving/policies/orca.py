"""Orca, OSDI'22: iteration-level scheduling with selective batching (section 3, Algorithm 1).

At every iteration the pool is walked in the order of arrival, past requests that are inside a batch in
flight, until ``max_batch`` are selected. A request in its first iteration must reserve KV slots for the
longest answer it may get (``max_tokens`` in the paper: prompt + ``max_output``); if they are not free the
walk stops, so that nobody overtakes. Finished requests leave at once. Batches are put into the pipeline until
each of its stages (workers) has one. Prompts run whole, and mix with single tokens; attention runs for each
request apart, at ``split_cost``.

The paper gives no figure for ``split_cost``; the default of 5 us is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface import (
    Admission,
    Batch,
    Engine,
    Scheduler,
    ServingPolicy,
    ServingView,
    Wait,
)


@dataclass(frozen=True)
class Orca(ServingPolicy):
    """Chooses the batch anew at every iteration, first come first served; reserves KV memory ahead."""

    name: ClassVar[str] = "orca"
    mechanism: ClassVar[str] = "every iteration"

    max_batch: int = knob(32, "requests in one iteration", low=1, high=4096)
    slots: int | None = knob(None, "KV slots (tokens); empty: what fits in memory", low=1, high=10**9)
    max_output: int | None = knob(
        None, "tokens reserved for an answer; empty: the service's longest", low=1, high=10**6
    )
    split_cost: float = knob(
        5e-6, "per request and layer, for attention run apart", low=0.0, high=1.0, unit="s"
    )

    def begin(self, engine: Engine) -> Scheduler:
        slots = engine.kv_slots if self.slots is None else min(self.slots, engine.kv_slots)
        return _IterationLevel(self.max_batch, slots, self.max_output or engine.max_output)

    @property
    def longest_reserved(self) -> int | None:
        return self.max_output

    def batches_in_flight(self, engine: Engine) -> int:
        return engine.stages


@dataclass(frozen=True)
class _IterationLevel:
    max_batch: int
    slots: int
    max_output: int

    def next_batch(self, view: ServingView) -> Batch | Wait:
        rejected = tuple(request for request in view.arrived if self._need(request, view) > self.slots)
        selected = [request for request in view.running if request not in view.in_flight][: self.max_batch]
        admitted = self._admissions(self.max_batch - len(selected), rejected, view)
        if not (selected or admitted):
            return Wait(reject=rejected)
        new = [admission.request for admission in admitted]
        return Batch(
            requests=(*selected, *new),
            tokens=(*[1] * len(selected), *[view.prompt[request] for request in new]),
            contexts=(*[view.computed[request] for request in selected], *[0] * len(new)),
            repeat=not new,
            admit=admitted,
            reject=rejected,
        )

    def _need(self, request: int, view: ServingView) -> int:
        return view.prompt[request] + self.max_output

    def _admissions(self, room: int, rejected: tuple[int, ...], view: ServingView) -> tuple[Admission, ...]:
        free = self.slots - view.kv_reserved
        admitted: list[Admission] = []
        for request in view.waiting:
            need = self._need(request, view)
            if request in rejected:
                continue
            if len(admitted) == room or need > free:
                break
            free -= need
            admitted.append(Admission(request, need))
        return tuple(admitted)
