"""The engine: requests come by the clock, a policy fills steps, torch carries them out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from experiments.core.progress import Progress, silent
from experiments.serving.interface import Iteration, ServingPlan
from experiments.serving.interface.blocks import BlockPool, keys_of
from experiments.serving.interface.ledger import RequestLedger
from experiments.serving.interface.paged import Entry, PagedPolicy, PagedView
from experiments.serving.interface.plan import BlockLog, BlockPass
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.live.kv import KvMemory
from experiments.serving.live.model import PagedGpt, Row
from experiments.workloads.requests import RequestTrace

Clock = Callable[[], float]


@dataclass
class LiveView(PagedView):
    """A view whose blocks are memory: what leaves for the host is copied there, and back."""

    memory: KvMemory = field(kw_only=True)
    copies: dict[int, Tensor] = field(default_factory=dict)

    def swap_out(self, request: int) -> bool:
        blocks = list(self.held[request])
        if not super().swap_out(request):
            return False
        self.copies[request] = self.memory.copy_out(blocks)
        return True

    def swap_in(self, request: int) -> bool:
        if not super().swap_in(request):
            return False
        self.memory.copy_in(self.held[request], self.copies.pop(request))
        return True


@dataclass(frozen=True)
class LiveOutcome:
    """What became of the requests, the tokens of each answer, and every step.

    ``seconds`` of it are from when the policy was asked, ``computing`` of them in the model.
    """

    plan: ServingPlan
    answers: list[list[int]]
    seconds: list[float]
    computing: list[float]


class LiveServing:
    """One run; ``clock`` counts seconds, and ``wait`` lets some pass."""

    def __init__(
        self,
        trace: RequestTrace,
        policy: PagedPolicy,
        model: PagedGpt,
        blocks: int,
        prompts: Sequence[Sequence[int]],
        progress: Progress = silent,
        clock: Clock = time.perf_counter,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.ledger = RequestLedger(trace, progress)
        self.model, self.clock, self.wait = model, clock, wait
        self.filler, prompt = policy.begin(), self.ledger.prompt
        self.tokens = [list(ids) for ids in prompts]
        self.view = LiveView(
            now=0.0,
            prompt=prompt,
            known=list(prompt),
            computed=[0] * len(prompt),
            pool=BlockPool(blocks, policy.block_size),
            keys=keys_of(trace, policy.block_size),
            caching=policy.caches_prefixes,
            host_blocks=policy.host_blocks,
            memory=model.memory(blocks, policy.block_size),
        )
        self.next, self.began = 0, 0.0
        self.iterations: list[Iteration] = []
        self.passes: list[BlockPass] = []
        self.seconds: list[float] = []
        self.computing: list[float] = []
        self.totals = dict.fromkeys(("hits", "recomputed", "preemptions", "swapped"), 0)
        self.verified = [0, 0]

    @property
    def now(self) -> float:
        return self.clock() - self.began

    def run(self) -> LiveOutcome:
        """Serve every request of the trace."""
        self.began = self.clock() - (self.ledger.arrival[0] if self.ledger.arrival else 0.0)
        while self._arrive():
            view = self.view
            begun = self.now
            view.begin(begun)
            self.filler.fill(view)
            self._note()
            if view.entries:
                self._step(begun)
            elif not (view.rejected or view.preempted) and not self._idle():
                break
        answers = [ids[prompt:] for ids, prompt in zip(self.tokens, self.ledger.prompt, strict=True)]
        return LiveOutcome(self._plan(), answers, self.seconds, self.computing)

    def _arrive(self) -> bool:
        view, arrival, now = self.view, self.ledger.arrival, self.now
        while self.next < len(arrival) and arrival[self.next] <= now:
            self._queue(self.next)
            self.next += 1
        return bool(view.waiting or view.running or view.swapped) or self.next < len(arrival)

    def _queue(self, request: int) -> None:
        room = min(self.model.positions, self.view.pool.total * self.view.pool.size)
        if self.ledger.total[request] > room:
            why = (
                f"its {self.ledger.total[request]} tokens are over the {room} of the model and its KV memory"
            )
            self.ledger.refuse(request, why)
        else:
            self.view.waiting.append(request)

    def _idle(self) -> bool:
        """Wait for the next arrival; ``False`` where none comes."""
        if self.next == len(self.ledger.arrival):
            return False
        self.wait(max(0.0, self.ledger.arrival[self.next] - self.now))
        return True

    def _note(self) -> None:
        view = self.view
        self.ledger.note(view)
        self.totals["hits"] += view.hits
        self.totals["recomputed"] += view.recomputed
        self.totals["preemptions"] += len(view.preempted)
        self.totals["swapped"] += view.swapped_blocks

    def _step(self, begun: float) -> None:
        view = self.view
        load = StepLoad.of(view.entries)
        drafts = {request: self._draft(request, count) for request, count in view.drafted.items()}
        rows = [self._row(entry, drafts.get(entry.request, [])) for entry in view.entries]
        before = self.now
        found = self.model.run(rows, view.memory)
        self.computing.append(self.now - before)
        chosen = [self._choose(logits) for logits in found]
        end = self.now
        pool = view.pool
        self.seconds.append(end - begun)
        row = (begun, end, load.sequences, load.tokens, 1, pool.used * pool.size)
        self.iterations.append(Iteration(*row))
        self.passes.append(BlockPass(load.prefill, load.decodes, pool.used, pool.cached, len(view.waiting)))
        for entry, tokens in zip(view.entries, chosen, strict=True):
            if tokens:
                self._give(entry.request, tokens, drafts.get(entry.request, []), end)

    def _row(self, entry: Entry, drafts: Sequence[int]) -> Row:
        request, count, context = entry
        ids = [*self.tokens[request][context : context + count - len(drafts)], *drafts]
        is_last = self.view.computed[request] == self.view.known[request]
        wanted = (1 + len(drafts)) if is_last else 0
        return Row(ids, context, self.view.held[request], wanted)

    def _choose(self, logits: Tensor) -> list[int]:
        ids: list[int] = logits.argmax(dim=-1).tolist()
        return ids

    def _draft(self, request: int, count: int) -> list[int]:
        """What followed the last token where it stood before: a bigram model of the request's own tokens."""
        ids = self.tokens[request]
        for place in range(len(ids) - 2, -1, -1):
            if ids[place] == ids[-1]:
                found = ids[place + 1 : place + 1 + count]
                return found + [ids[-1]] * (count - len(found))
        return [ids[-1]] * count

    def _give(self, request: int, tokens: Sequence[int], drafts: Sequence[int], end: float) -> None:
        """The tokens that the pass is sure of: one, and one more for each draft that was right."""
        view, ledger = self.view, self.ledger
        right = next((n for n, draft in enumerate(drafts) if draft != tokens[n]), len(drafts))
        if drafts:
            self.verified[0] += 1
            self.verified[1] += 1 + right
            right = min(right, ledger.total[request] - view.known[request] - 1)
            view.accept(request, right)
        self.tokens[request] += tokens[: 1 + right]
        view.known[request] += 1
        ledger.give_tokens(request, end, end)
        ledger.gaps.extend([0.0] * right)
        if view.known[request] == ledger.total[request]:
            ledger.answer(request, end, len(view.held[request]))
            view.finish(request)

    def _plan(self) -> ServingPlan:
        pool, totals = self.view.pool, self.totals
        log = BlockLog(
            pool.total,
            pool.size,
            tuple(self.passes),
            totals["hits"],
            totals["recomputed"],
            totals["preemptions"],
            self.ledger.preempted,
            totals["swapped"],
            0.0,
            0,
            pool.used,
            *self.verified,
        )
        return ServingPlan(
            self.ledger.served(pool.size, self.view.computed.__getitem__),
            tuple(self.iterations),
            memoryview(self.ledger.gaps),
            len(self.iterations),
            log,
        )
