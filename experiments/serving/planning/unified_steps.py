"""Steps without phases: every request catches up with its known tokens, within a budget (vLLM's V1).

Running requests first, in the order of admission, then waiting ones in the order of arrival while budget,
sequences and free blocks for all that is known of them last. Blocks missing for a running request are taken
from the last admitted one; in such a step nobody is admitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.serving.interface.paged import PagedView


@dataclass(frozen=True)
class UnifiedSteps:
    """``drafts`` tokens are verified behind the last one of each answer that has begun."""

    max_batch: int
    budget: int
    longest: int
    drafts: int = 0

    def fill(self, view: PagedView) -> bool:
        """Fill a step; ``True``: it would be filled alike again."""
        left = self._run(view)
        if view.preempted:
            return False
        while view.waiting and left > 0 and len(view.running) < self.max_batch:
            taken = view.admit(view.waiting[0], min(left, self.longest))
            if not taken:
                break
            left -= taken
        return not (self.drafts or view.admitted) and view.is_all_decodes

    def _run(self, view: PagedView) -> int:
        """Running requests first; returns what is left of the budget."""
        left, place, running = self.budget, 0, view.running
        if not self.drafts and len(running) <= left and view.extend_all():
            return left - len(running)
        while place < len(running) and left > 0:
            request = running[place]
            while not (taken := self._take(view, request, left)):
                victim = running[-1]
                view.preempt(victim)
                if victim == request:
                    return left
            left -= taken
            place += 1
        return left

    def _take(self, view: PagedView, request: int, left: int) -> int:
        """Tokens of a running request in the step; 0 where blocks lack."""
        lacking = view.lacking(request)
        has_begun = view.known[request] > view.prompt[request]
        drafts = min(self.drafts, left - 1) if has_begun else 0
        if lacking == 1 and drafts > 0 and view.verify(request, drafts):
            return 1 + drafts
        wanted = min(lacking, left, self.longest)
        return wanted if view.extend(request, wanted) else 0
