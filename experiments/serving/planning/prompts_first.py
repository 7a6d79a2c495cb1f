"""Steps that are either of prompts or of decodes, prompts first (vLLM's first scheduler, SOSP'23, section 4).

Waiting requests are admitted whole in the order of arrival while blocks beyond a watermark, sequences and
tokens last; one that could never fit is rejected. Each decode needs at most one block more; where none is
left, the latest request gives all of its back.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.serving.interface.paged import PagedView


@dataclass(frozen=True)
class PromptsFirst:
    """``swaps``: the latest request's blocks are copied to the host where they fit, else computed anew.

    A prompt longer than ``max_tokens`` has a step of its own. ``padded``: that limit counts every prompt of
    a step as long as the longest.
    """

    max_batch: int
    max_tokens: int
    watermark: float = 0.01
    swaps: bool = False
    padded: bool = False

    def fill(self, view: PagedView, most: int | None = None) -> bool:
        """Fill a step, of at most ``most`` decodes; ``True``: it would be filled alike again."""
        reserve = int(self.watermark * view.pool.total)
        if not view.swapped and self._prompts(view, reserve):
            return False
        decode_all(view, swaps=self.swaps, most=most)
        if not view.preempted:
            self._bring_back(view, reserve)
        return not (view.preempted or view.swapped or view.rejected or view.swapped_blocks)

    def _prompts(self, view: PagedView, reserve: int) -> bool:
        admit_prompts(view, self.max_tokens, self.max_batch, reserve, self.padded)
        return bool(view.entries)

    def _bring_back(self, view: PagedView, reserve: int) -> None:
        while view.swapped and len(view.running) < self.max_batch:
            request = view.swapped[0]
            # Blocks are kept free for others: alone it needs no more than its own.
            kept = view.sequences + reserve if view.running else 0
            if view.on_host[request] + kept > view.pool.free or not view.swap_in(request):
                return
            if not view.extend(request, 1):
                view.preempt(request)
                return


def admit_prompts(view: PagedView, tokens: int, max_batch: int, reserve: int, padded: bool = False) -> None:
    """Admit whole prompts of ``tokens`` together; the first may be longer. Such as never fit are rejected."""
    admitted = longest = counted = 0
    while view.waiting and len(view.running) < max_batch and counted < tokens:
        if reject_too_large(view, reserve):
            continue
        request = view.waiting[0]
        known = view.known[request]
        longest = max(longest, known)
        counted = (admitted + 1) * longest if padded else counted + known
        if counted > tokens and admitted:
            return
        if not view.admit(request, known, reserve=reserve):
            return
        admitted += 1


def reject_too_large(view: PagedView, reserve: int) -> bool:
    """Reject the head of the queue where no blocks ever hold it with ``reserve`` more left over."""
    request = view.waiting[0]
    known = view.known[request]
    if view.pool.blocks_for(known) + reserve <= view.pool.total:
        return False
    view.reject(request, f"its {known} tokens and the watermark are more than all KV blocks")
    return True


def decode_all(view: PagedView, *, swaps: bool = False, most: int | None = None) -> None:
    """One token of every request that runs, or of ``most``; while blocks lack, the latest gives way."""
    if (most is None or len(view.running) <= most) and view.extend_all():
        return
    for request in sorted(view.running) if most is None else view.running[:most]:
        if request not in view.held:
            continue
        while not view.extend(request, 1):
            victim = max(one for one in view.running if not view.is_in_step(one))
            is_alone = len(view.running) == 1 and not view.entries
            if is_alone or not (swaps and view.swap_out(victim)):
                view.preempt(victim)
            if victim == request:
                break
