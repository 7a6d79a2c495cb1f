"""The engine over KV blocks: arrivals, the policy's step, what an executor makes of it, the tokens that come
out.

A step that a policy would fill the same again is made as often as nothing changes: until a request ends, one
arrives that would not wait behind others, or blocks run out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.core.errors import ImpossiblePlan
from experiments.core.progress import Progress, silent
from experiments.serving.interface import Iteration, ServingPlan
from experiments.serving.interface.blocks import BlockPool, keys_of
from experiments.serving.interface.executor import StepExecutor
from experiments.serving.interface.ledger import RequestLedger
from experiments.serving.interface.pace import Pace
from experiments.serving.interface.paged import PagedPolicy, PagedView
from experiments.serving.interface.plan import BlockLog, BlockPass
from experiments.serving.interface.refusals import over_context, over_memory
from experiments.serving.interface.step_load import Entry, StepLoad, StepPrice
from experiments.serving.simulator.priced import PricedSteps
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats

#: Steps that are priced at once at most.
MOST_AT_ONCE = 4096


def simulate_paged(
    trace: RequestTrace,
    policy: PagedPolicy,
    blocks: int,
    price: StepPrice,
    context: int | None = None,
    swap_seconds: float = 0.0,
    progress: Progress = silent,
    seed: int = 0,
    pace: Pace | None = None,
) -> ServingPlan:
    """Serve all requests of ``trace`` from ``blocks`` of KV memory.

    Prompts over ``context`` are refused. A step waits ``swap_seconds`` for each block that is copied to or
    from the host. ``seed`` draws which drafted tokens are right. ``price`` is at the usual ``pace`` of the
    host.
    """
    executor = PricedSteps(price, swap_seconds, policy.speculation, seed, policy.branches, pace)
    return PagedEngine(trace, policy, blocks, executor, context, progress).run()


def most_steps(view: PagedView, entries: Sequence[Entry], total: Sequence[int]) -> int:
    """Steps of ``entries``, all of one token, until the first of them ends or blocks run out."""
    size, known = view.pool.size, view.known
    left: int = min([total[request] - known[request] for request, _, _ in entries])
    left = min(left, MOST_AT_ONCE)
    if left * len(entries) <= view.pool.free:
        return left
    room = np.array([len(view.held[r]) * size - view.computed[r] for r, _, _ in entries])
    while left > 1 and int(np.maximum(0, -(-(left - 1 - room) // size)).sum()) > view.pool.free:
        left -= max(1, left // 8)
    return max(1, left)


class PagedEngine:
    """The state of one run."""

    def __init__(
        self,
        trace: RequestTrace,
        policy: PagedPolicy,
        blocks: int,
        executor: StepExecutor,
        context: int | None = None,
        progress: Progress = silent,
    ) -> None:
        self.ledger = RequestLedger(trace, progress)
        self.arrival, self.total = self.ledger.arrival, self.ledger.total
        prompt = self.ledger.prompt
        self.executor, self.context = executor, context
        self.filler = policy.begin()
        #: Verifications, and the tokens that came out of them.
        self.verified = [0, 0]
        self.view = executor.view(
            now=0.0,
            prompt=prompt,
            known=list(prompt),
            computed=[0] * len(prompt),
            pool=BlockPool(blocks, policy.block_size),
            keys=keys_of(trace, policy.block_size),
            caching=policy.caches_prefixes,
            host_blocks=policy.host_blocks,
        )
        self.iterations: list[Iteration] = []
        self.passes: list[BlockPass] = []
        self.totals = dict.fromkeys(("passes", "hits", "recomputed", "preemptions", "swapped", "beyond"), 0)
        self.seconds_beyond = 0.0
        #: Block-seconds that were held, and those that sequences would have held without sharing any.
        self.shared = [0.0, 0.0]
        self.now, self.next = self.arrival[0] if prompt else 0.0, 0

    def run(self) -> ServingPlan:
        while self._arrive():
            self.view.begin(self.now)
            steady = self.filler.fill(self.view) and self.view.repeats
            self._note()
            if self.view.entries:
                self._step(steady)
            elif not self._skip():
                break
        return ServingPlan(
            self.ledger.served(self.view.pool.size, self.view.computed.__getitem__),
            tuple(self.iterations),
            memoryview(self.ledger.gaps),
            self.totals["passes"],
            self._log(),
            self.totals["beyond"],
            self.seconds_beyond,
        )

    def _arrive(self) -> bool:
        """Moves arrivals up to now into the queue; without any work the clock goes on to the next one."""
        view, arrival = self.view, self.arrival
        if not (view.waiting or view.running or view.swapped) and self.next < len(arrival):
            self.now = max(self.now, arrival[self.next])
        self.now = self.executor.reach(self.now)
        while self.next < len(arrival) and arrival[self.next] <= self.now:
            self._queue(self.next)
            self.next += 1
        return bool(view.waiting or view.running or view.swapped) or self.next < len(arrival)

    def _queue(self, request: int) -> None:
        """It waits, unless it could never be served."""
        if why := self._refusal(request):
            self.ledger.refuse(request, why)
        else:
            self.view.waiting.append(request)

    def _refusal(self, request: int) -> str:
        view, total = self.view, self.total[request]
        prompt, pool = view.prompt[request], view.pool
        if why := over_context(prompt, self.context):
            return why
        is_too_large = view.least_blocks(prompt, total - prompt) > pool.total
        return over_memory(prompt, total - prompt, pool.total * pool.size) if is_too_large else ""

    def _skip(self) -> bool:
        """Nothing runs: on to the next arrival; ``False`` where none comes and what waits never runs."""
        view = self.view
        for request in view.preempted:
            if request in view.waiting:  # nothing else ran, and it gave way: its sequences differ too much
                view.waiting.remove(request)
                self.ledger.refuse(request, "its sequences are larger than all KV memory")
                return True
        if view.rejected:
            return True
        if self.next == len(self.arrival):
            return False
        self.now = max(self.now, self.arrival[self.next])
        return True

    def _note(self) -> None:
        """What the policy did besides the entries."""
        view = self.view
        self.ledger.note(view)
        self.totals["hits"] += view.hits
        self.totals["recomputed"] += view.recomputed
        self.totals["preemptions"] += len(view.preempted)
        self.totals["swapped"] += view.swapped_blocks

    def _step(self, steady: bool) -> None:
        view = self.view
        load = StepLoad.of(view.entries, view.drafted)
        if steady and load.prefill:
            raise ImpossiblePlan([f"a step at t={self.now:g} s with parts of prompts is to be repeated"])
        most = most_steps(view, view.entries, self.total) if steady else 1
        ends = self.executor.carry_out(view, load, self.now, most)
        steps = self._cut(ends) if steady else 1
        if steps > 1:
            view.repeat(steps - 1)
        self._record(load, ends[:steps], steps)
        self._emit(view.entries, ends[:steps])
        self.now = float(ends[steps - 1])

    def _accepted(self, request: int) -> int:
        """Drafted tokens of ``request`` that are right and still asked for."""
        right = self.executor.right_drafts(self.view, request)
        left = self.total[request] - self.view.known[request]
        self.verified[0] += 1
        self.verified[1] += 1 + right
        return right if right < left else left - 1

    def _cut(self, ends: Floats) -> int:
        """Steps that begin before somebody arrives whom the policy would ask about."""
        if self.view.waiting or self.next == len(self.arrival):
            return len(ends)
        begun = int(np.searchsorted(ends, self.arrival[self.next])) + 1
        return int(min(len(ends), begun))

    def _record(self, load: StepLoad, ends: Floats, steps: int) -> None:
        pool, view = self.view.pool, self.view
        end, used = float(ends[-1]), pool.used
        beyond = self.executor.steps_beyond(load, steps)
        row = (self.now, end, load.sequences, load.tokens, steps, used * pool.size, beyond)
        self.iterations.append(Iteration(*row))
        verified = sum(tokens for tokens, _ in load.verified)  # counted with prompts, but no part of one
        tokens = (load.prefill - verified, load.decodes + verified)
        self.passes.append(BlockPass(*tokens, used, pool.cached, len(view.waiting)))
        self.totals["passes"] += steps
        if view.sequences > 1:
            self.shared[0] += (end - self.now) * used
            self.shared[1] += (end - self.now) * view.logical_blocks
        if beyond:
            self.totals["beyond"] += beyond
            self.seconds_beyond += end - (self.now if beyond == steps else float(ends[steps - beyond - 1]))

    def _emit(self, entries: Sequence[Entry], ends: Floats) -> None:
        """A token at each end for every request whose tokens are all computed; the last one ends it."""
        view, ledger, first, last = self.view, self.ledger, float(ends[0]), float(ends[-1])
        computed, known, total = view.computed, view.known, self.total
        emitting = [request for request, _, _ in entries if computed[request] == known[request]]
        if view.sequences > 1:
            emitting = list(dict.fromkeys(emitting))
        if view.drafted:
            self._emit_drafted(emitting, first)
        else:
            ledger.give_tokens(emitting, first, last)
        ended = []
        for request in emitting:
            tokens = known[request] = known[request] + 1
            if tokens == total[request]:
                ended.append(request)
        for request in ended:
            ledger.answer(request, last, len(view.held[request]))
            view.finish(request)
        ledger.repeat_gaps(ends, len(emitting))

    def _emit_drafted(self, emitting: Sequence[int], time: float) -> None:
        """Those whose drafts were verified get as many tokens more as were right, at the same time."""
        for request in emitting:
            more = self._accepted(request) if request in self.view.drafted else 0
            if request in self.view.drafted:
                self.view.accept(request, more)
            self.ledger.give_tokens((request,), time, time)
            self.ledger.gaps.extend([0.0] * more)

    def _log(self) -> BlockLog:
        pool, totals = self.view.pool, self.totals
        return BlockLog(
            pool.total,
            pool.size,
            tuple(self.passes),
            totals["hits"],
            totals["recomputed"],
            totals["preemptions"],
            self.ledger.preempted,
            totals["swapped"],
            pool.used,
            *self.verified,
            *self.shared,
        )
