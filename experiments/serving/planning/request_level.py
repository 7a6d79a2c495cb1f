"""Request-level batching: a batch of requests runs until its longest answer is done.

Prompts are padded to the longest, or as FasterTransformer 4.0 has it (``SHORTEST``): the first pass computes
as many tokens of each as the shortest prompt has, the passes after it one token each, of a prompt or of an
answer. Every slot costs a token in every step, finished or not; all answers go out together
(``early_return``: each at its own end). KV memory is reserved for the longest prompt and the longest answer
allowed. Over a pipeline, a batch is split into micro-batches of ``micro_batch`` requests.

Source of ``SHORTEST``: FasterTransformer at revision 39eeeda of May 2021, ``th_op/gpt.cc`` and ``gpt.h``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
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

PADDED, SHORTEST = "padded", "shortest"


@dataclass(frozen=True)
class RequestLevelBatching(ServingPolicy):
    """Runs a batch until its longest answer is done; a policy of this kind says when to dispatch one."""

    sees: ClassVar[frozenset[str]] = frozenset({"output"})

    max_batch: int = knob(8, "requests in a batch", low=1, high=4096)
    micro_batch: int = knob(
        0, "requests in a micro-batch of the pipeline; 0: the whole batch", low=0, high=4096
    )
    max_output: int | None = knob(
        None, "tokens reserved for an answer; empty: the service's longest", low=1, high=10**6
    )
    prompts: str = knob(
        PADDED,
        "prompts of a batch in the first pass: padded to the longest, or as long as the shortest, the rest of"
        " the others token by token",
        choices=(PADDED, SHORTEST),
    )
    early_return: bool = knob(False, "answer each request at its own end instead of the batch's")

    @property
    def holds_answers(self) -> bool:
        return True

    @property
    def early_answers(self) -> bool:
        return self.early_return

    @property
    def longest_reserved(self) -> int | None:
        return self.max_output

    def begin(self, engine: Engine) -> Scheduler:
        return _RequestLevel(self, engine.kv_slots, self.max_output or engine.max_output)

    def wait_for(self, oldest: float, queued: int, view: ServingView) -> float | None:
        """Until when to wait for more requests; ``None``: dispatch now."""
        raise NotImplementedError


@dataclass
class _RequestLevel:
    """``batch`` are the requests that run now, ``context`` what each slot has after the last pass.

    True output lengths are looked at only to know when the last answer of a batch is done: the engine would
    see that step by step, and no choice depends on it.
    """

    policy: RequestLevelBatching
    kv_slots: int
    max_output: int
    batch: list[int] = field(default_factory=list)
    context: int = 0

    def next_batch(self, view: ServingView) -> Batch | Wait:
        steps = max((self._tokens_left(r, view) for r in self.batch), default=0)
        rejected = tuple(r for r in view.arrived if view.prompt[r] + self.max_output > self.kv_slots)
        if steps:
            return self._decode(steps, rejected)
        answer, self.batch = tuple(self.batch), []
        return self._dispatch(answer, rejected, view)

    def _tokens_left(self, request: int, view: ServingView) -> int:
        """Tokens to be computed until its answer is whole, whose last token is not computed on."""
        return view.prompt[request] + view.output[request] - 1 - view.computed[request]

    def _decode(self, steps: int, rejected: tuple[int, ...]) -> Batch:
        contexts = (self.context,) * len(self.batch)
        self.context += steps
        requests = tuple(self.batch)
        return Batch(
            requests=requests,
            tokens=(1,) * len(requests),
            contexts=contexts,
            steps=steps,
            micro_batch=self.policy.micro_batch,
            reject=rejected,
        )

    def _dispatch(
        self, answer: tuple[int, ...], rejected: tuple[int, ...], view: ServingView
    ) -> Batch | Wait:
        queue = [r for r in view.waiting if r not in rejected]
        if not queue:
            return Wait(reject=rejected, answer=answer)
        until = self.policy.wait_for(view.arrival[queue[0]], len(queue), view)
        if until is not None:
            return Wait(None if until == math.inf else until, rejected, answer)
        self.batch = self._that_fit(queue, view)
        lengths = [view.prompt[r] for r in self.batch]
        longest = max(lengths)
        self.context = longest if self.policy.prompts == PADDED else min(lengths)
        size = len(self.batch)
        return Batch(
            requests=tuple(self.batch),
            tokens=(self.context,) * size,
            contexts=(0,) * size,
            micro_batch=self.policy.micro_batch,
            admit=tuple(Admission(r, longest + self.max_output) for r in self.batch),
            reject=rejected,
            answer=answer,
        )

    def _that_fit(self, queue: list[int], view: ServingView) -> list[int]:
        """The first ``max_batch`` requests, fewer where their padded reservations exceed the KV memory."""
        batch: list[int] = []
        longest = 0
        for request in islice(queue, self.policy.max_batch):
            longest = max(longest, view.prompt[request])
            if (len(batch) + 1) * (longest + self.max_output) > self.kv_slots:
                break
            batch.append(request)
        return batch
