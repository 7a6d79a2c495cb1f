"""What a policy over KV blocks sees, and fills: the next step, entry by entry.

An entry takes its blocks at once, so that a policy always sees what is left. The simulator and the live
engine carry the same filled step out; only how long it takes, and what tokens come out, differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, ClassVar, Protocol, Self

from experiments.core.errors import ImpossiblePlan
from experiments.core.knobs import knob
from experiments.core.policy import Policy
from experiments.serving.interface.blocks import BlockPool
from experiments.serving.interface.branches import Branches
from experiments.serving.interface.policy import (
    ONE_MODEL,
    cut_prompts,
    delay_objective,
    normalized_objective,
    rate_search,
    tail_search,
    tpot_objective,
    ttft_objective,
)
from experiments.serving.interface.speculation import Speculation
from experiments.serving.interface.step_load import Entry, StepPrice


@dataclass
class PagedView:
    """Requests are numbered in the order of arrival; ``running`` stands in the order of admission.

    ``known`` tokens of a request exist (prompt and answer so far), of ``computed`` ones the keys and
    values are in memory. ``entries`` are those of the step being filled; ``hits`` were found in the pool
    instead of computed; of what a preempted request had (``lost``), ``recomputed`` were not. ``keys``
    name the full blocks of each request's tokens; without ``caching`` nothing is found. ``drafted`` has
    how many tokens behind a request's last one are verified."""

    now: float
    prompt: Sequence[int]
    known: list[int]
    computed: list[int]
    pool: BlockPool
    keys: Sequence[Sequence[int]]
    caching: bool
    host_blocks: int = 0
    waiting: deque[int] = field(default_factory=deque)
    running: list[int] = field(default_factory=list)
    swapped: deque[int] = field(default_factory=deque)
    entries: list[Entry] = field(default_factory=list)
    held: dict[int, list[int]] = field(default_factory=dict)
    preempted: list[int] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    hits: int = 0
    recomputed: int = 0
    swapped_blocks: int = 0
    drafted: dict[int, int] = field(default_factory=dict)
    on_host: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """Sequences of each request that decode, each of which takes blocks of its own."""
        return 1

    @property
    def logical_blocks(self) -> int:
        """Blocks that requests would hold if sequences shared none."""
        return self.pool.used

    @property
    def repeats(self) -> bool:
        """Whether a filled step may be repeated without asking the policy."""
        return True

    @property
    def is_all_decodes(self) -> bool:
        """Whether the step is one token of every running request, behind which none is known."""
        known, computed = self.known, self.computed
        return len(self.entries) == len(self.running) and all(
            tokens == 1 and known[request] == computed[request] for request, tokens, _ in self.entries
        )

    def least_blocks(self, prompt: int, output: int) -> int:
        """Blocks that a request of so many tokens has at its end, at least: its last token needs none."""
        return self.pool.blocks_for(prompt + output - 1)

    def begin(self, now: float) -> None:
        """Empties the step."""
        self.now = now
        self.entries, self.preempted, self.rejected, self.admitted = [], [], [], []
        self.hits = self.recomputed = self.swapped_blocks = 0
        self.drafted = {}

    def lacking(self, request: int) -> int:
        """Tokens that exist and were not computed: one of a request that decodes."""
        return self.known[request] - self.computed[request]

    def extend(self, request: int, tokens: int) -> bool:
        """Adds ``tokens`` of a running request to the step; ``False`` where no blocks are left for them."""
        computed = self.computed[request]
        if not 0 < tokens <= self.known[request] - computed:
            raise self.illegal(request, f"runs with {tokens} of {self.known[request] - computed} tokens")
        held = self.held[request]
        need = self.pool.blocks_for(computed + tokens) - len(held)
        if need > self.pool.free:
            return False
        if need > 0:
            held.extend(self.pool.take(need))
        self._compute(request, tokens)
        return True

    def verify(self, request: int, drafts: int) -> bool:
        """The last token of a request that decodes and ``drafts`` behind it; ``False`` where blocks lack."""
        if self.lacking(request) != 1 or drafts < 1:
            raise self.illegal(request, f"verifies {drafts} tokens and lacks {self.lacking(request)}")
        computed, held = self.computed[request], self.held[request]
        need = self.pool.blocks_for(computed + 1 + drafts) - len(held)
        if need > self.pool.free:
            return False
        held.extend(self.pool.take(max(0, need)))
        self.entries.append(Entry(request, 1 + drafts, computed))
        self.computed[request] = computed + 1
        self.drafted[request] = drafts
        return True

    def accept(self, request: int, drafts: int) -> None:
        """So many drafted tokens are right: they are known, and their KV is there; the rest is left."""
        self.known[request] += drafts
        self.computed[request] += drafts
        held, needed = self.held[request], self.pool.blocks_for(self.computed[request] + 1)
        if len(held) > needed:
            self.pool.release(held[needed:])
            del held[needed:]

    def extend_all(self, *, only_decodes: bool = False) -> bool:
        """One token of every running request, where each lacks one and blocks last for all; else nothing.

        ``only_decodes``: those that lack more are left out. The step must be empty.
        """
        size, computed, known, held = self.pool.size, self.computed, self.known, self.held
        chosen: list[int] = []
        contexts: list[int] = []
        full: list[int] = []
        for request in self.running:
            there = computed[request]
            if known[request] - there == 1:
                chosen.append(request)
                contexts.append(there)
                if not there % size and there == len(held[request]) * size:
                    full.append(request)
            elif not only_decodes:
                return False
        if len(full) > self.pool.free:
            return False
        for request, block in zip(full, self.pool.take(len(full)), strict=True):
            held[request].append(block)
        self.entries = list(map(Entry, chosen, repeat(1), contexts))
        for request, there in zip(chosen, contexts, strict=True):
            computed[request] = there + 1
            if there < self.prompt[request] and self.caching:
                self._register(request, there, there + 1)
        return True

    def repeat(self, more: int) -> None:
        """``more`` further tokens of every entry of the step, all of one token; there are blocks for them."""
        self.repeat_entries(self.entries, more)

    def repeat_entries(self, entries: Sequence[Entry], more: int) -> None:
        """The same of a step that was filled before."""
        size, computed, known, held = self.pool.size, self.computed, self.known, self.held
        for request, _, _ in entries if more else ():
            known[request] += more
            computed[request] += more
            need = -(-computed[request] // size) - len(held[request])
            if need > 0:
                held[request].extend(self.pool.take(need))

    def _compute(self, request: int, tokens: int) -> None:
        computed = self.computed[request]
        self.entries.append(Entry(request, tokens, computed))
        self.computed[request] = computed + tokens
        if self.caching and computed < self.prompt[request]:
            self._register(request, computed, computed + tokens)

    def _register(self, request: int, before: int, after: int) -> None:
        """The blocks of the prompt that became full, under the keys that are told of them."""
        size, held, keys = self.pool.size, self.held[request], self.keys[request]
        for place in range(before // size, min(after // size, len(keys))):
            self.pool.register(held[place], keys[place])

    def cached(self, request: int) -> list[int]:
        """The blocks of a waiting request that are in the pool; its last token has to run in any case."""
        if not self.caching:
            return []
        most = (self.known[request] - 1) // self.pool.size
        keys = self.keys[request]
        if most > len(keys) and request in self.lost:
            keys = [*keys, *(own_key(request, place) for place in range(len(keys), most))]
        return self.pool.find(keys, most)

    def admit(self, request: int, budget: int, *, reserve: int = 0, whole: bool = True) -> int:
        """Admits the head of the queue and returns how many of its tokens run, at most ``budget``.

        0 where blocks for it are missing. ``whole``: there must be free blocks for all that is known of it,
        ``reserve`` more left over; else for the tokens of the step alone.
        """
        if request != self.waiting[0]:
            raise self.illegal(request, "is admitted before the head of the queue")
        found = self.cached(request)
        start = len(found) * self.pool.size
        tokens = min(self.known[request] - start, budget)
        taken = sum(self.pool.references(block) == 0 for block in found)
        upto = self.known[request] if whole else start + tokens
        need = self.pool.blocks_for(upto) - len(found) + taken
        if tokens < 1 or need + reserve > self.pool.free:
            return 0
        self.waiting.popleft()
        self.pool.share(found)
        self.held[request] = list(found)
        lost = self.lost.pop(request, 0)
        self.recomputed += max(0, lost - start)
        self.hits += max(0, start - lost)
        self.computed[request] = start
        self.running.append(request)
        self.admitted.append(request)
        held = self.held[request]
        held.extend(self.pool.take(self.pool.blocks_for(start + tokens) - len(held)))
        self._compute(request, tokens)
        return tokens

    def reserve(self, request: int, tokens: int) -> None:
        """Blocks of a running request up to ``tokens``, before they are computed."""
        held = self.held[request]
        need = self.pool.blocks_for(tokens) - len(held)
        if need > self.pool.free:
            raise self.illegal(request, f"reserves {need} blocks of {self.pool.free}")
        held.extend(self.pool.take(max(0, need)))

    def preempt(self, request: int) -> None:
        """Takes back all blocks of a running request that is not in the step.

        It waits at the head of the queue, and computes anew what no block holds any more.
        """
        self.lost[request] = self.computed[request]
        if self.caching:
            self._keep_own(request)
        self._leave(request)
        self.computed[request] = 0
        self.waiting.appendleft(request)

    def _keep_own(self, request: int) -> None:
        """Its full blocks that no key is told of are found again by itself alone, so they are named now."""
        held, told = self.held[request], len(self.keys[request])
        for place in range(told, self.computed[request] // self.pool.size):
            self.pool.register(held[place], own_key(request, place))

    def swap_out(self, request: int) -> bool:
        """Copies its blocks to the host; ``False`` where the host has too few."""
        count = len(self.held[request])
        if count > self.host_blocks:
            return False
        self._leave(request)
        self.host_blocks -= count
        self.on_host[request] = count
        self.swapped_blocks += count
        self.swapped.append(request)
        return True

    def swap_in(self, request: int) -> bool:
        """Brings back the head of those on the host; ``False`` where blocks are missing."""
        if request != self.swapped[0]:
            raise self.illegal(request, "comes back before those that left earlier")
        count = self.on_host[request]
        if count > self.pool.free:
            return False
        self.swapped.popleft()
        del self.on_host[request]
        self.host_blocks += count
        self.held[request] = self.pool.take(count)
        self.swapped_blocks += count
        self.running.append(request)
        return True

    def _leave(self, request: int) -> None:
        if request not in self.held or self.is_in_step(request):
            raise self.illegal(request, "is preempted but does not run, or is in the step")
        self.running.remove(request)
        self.pool.release(self.held.pop(request))
        self.preempted.append(request)

    def is_in_step(self, request: int) -> bool:
        return any(entry.request == request for entry in self.entries)

    def reject(self, request: int, why: str) -> None:
        if request not in self.waiting:
            raise self.illegal(request, "is rejected but does not wait")
        self.waiting.remove(request)
        self.rejected.append((request, why))

    def finish(self, request: int) -> None:
        """Gives back its blocks; asked by what carries the step out."""
        self.running.remove(request)
        self.pool.release(self.held.pop(request))

    def illegal(self, request: int, what: str) -> ImpossiblePlan:
        return ImpossiblePlan([f"request {request} at t={self.now:g} s: {what}"])


def own_key(request: int, place: int) -> int:
    """Of a block that only its own request can find again: odd, where those that are told are even."""
    return ((request << 32 | place) << 1) | 1


class StepFiller(Protocol):
    """Fills ``view.entries`` whenever the engine is free.

    Without an entry it is asked again when a request arrives. ``True`` says that it would fill the same again
    until a request arrives or ends, or blocks run out: the simulator may then make those steps without
    asking, also while requests arrive that wait behind others.
    """

    def fill(self, view: PagedView) -> bool: ...


@dataclass(frozen=True)
class PagedPolicy(Policy):
    """A policy that fills steps over KV blocks.

    ``sees`` may name nothing: no policy over blocks knows output lengths.
    """

    family: ClassVar[str] = "serving"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("requests",),
        "measured": ("requests",),
    }

    block_size: int = knob(16, "tokens in a block", low=1, high=4096, unit="tokens")
    blocks: int | None = knob(None, "KV blocks; empty: what fits in memory", low=1, high=10**9)
    host_blocks: int = knob(0, "blocks of host memory to swap to", low=0, high=10**9)
    slo_ttft: float | None = ttft_objective()
    slo_tpot: float | None = tpot_objective()
    slo_normalized: float | None = normalized_objective()
    wanted_attainment: float | None = rate_search()
    slo_tbt_p99: float | None = tail_search()
    slo_delay_p50: float | None = delay_objective()
    truncate: bool = cut_prompts()

    @property
    def caches_prefixes(self) -> bool:
        return False

    @property
    def speculation(self) -> Speculation | None:
        """What drafts are worth and cost, for a policy that verifies some."""
        return None

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        return ONE_MODEL if "models" in told else ""

    @property
    def branches(self) -> Branches | None:
        """How many sequences each request has, for a policy of several."""
        return None

    def settle(self, price: StepPrice, prompts: Sequence[int]) -> Self:
        """Return the policy with the knobs set that it chooses before the first request.

        It may know what a step costs, and how long prompts are.
        """
        return self

    def begin(self) -> StepFiller:
        """What decides during one run: a fresh object."""
        raise NotImplementedError(type(self).__name__)
