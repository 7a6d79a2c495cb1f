"""vLLM's first scheduler over paged KV memory, SOSP'23 (Kwon et al., sections 4.3 to 4.5).

A step is either of prompts or of decodes, prompts first. Waiting requests are admitted whole in the order
of arrival while blocks beyond a watermark, sequences and tokens last; one that could never fit is
rejected. Each decode needs at most one block more; where none is left, the latest request gives all of
its back: it is computed anew later (``recompute``), or copied to the host and back (``swap``), in the
order in which it left and before any new prompt. ``auto`` recomputes, as the paper does for requests of a
single sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.paged import PagedPolicy, PagedView, StepFiller


@dataclass(frozen=True)
class VllmPaged(PagedPolicy):
    """KV memory grows block by block; prompts run apart from decodes, the latest request gives way."""

    name: ClassVar[str] = "vllm_paged"
    mechanism: ClassVar[str] = "every iteration"

    max_batch: int = knob(256, "sequences at once", low=1, high=65536)
    max_tokens: int = knob(2560, "tokens in a step of prompts", low=1, high=10**6, unit="tokens")
    watermark: float = knob(0.01, "share of blocks left free when a prompt is admitted", low=0.0, high=0.5)
    preemption: str = knob("auto", "what the latest gives way by", choices=("auto", "recompute", "swap"))

    def begin(self) -> StepFiller:
        return _Phases(self.max_batch, self.max_tokens, self.watermark, self.preemption == "swap")


@dataclass(frozen=True)
class _Phases:
    max_batch: int
    max_tokens: int
    watermark: float
    swaps: bool

    def fill(self, view: PagedView) -> bool:
        reserve = int(self.watermark * view.pool.total)
        if not view.swapped and self._prompts(view, reserve):
            return False
        self._decodes(view)
        if not view.preempted:
            self._bring_back(view, reserve)
        return not (view.preempted or view.swapped or view.rejected or view.swapped_blocks)

    def _prompts(self, view: PagedView, reserve: int) -> bool:
        left = self.max_tokens
        while view.waiting and len(view.running) < self.max_batch:
            request = view.waiting[0]
            known = view.known[request]
            if view.pool.blocks_for(known) + reserve > view.pool.total:
                view.reject(request, f"its {known} tokens and the watermark are more than all KV blocks")
                continue
            if known > left and left < self.max_tokens:
                break
            if not view.admit(request, known, reserve=reserve):
                break
            left -= known
        return bool(view.entries)

    def _decodes(self, view: PagedView) -> None:
        if view.extend_all():
            return
        for request in sorted(view.running):
            if request not in view.held:
                continue
            while not view.extend(request, 1):
                victim = max(view.running)
                if not (self.swaps and view.swap_out(victim)):
                    view.preempt(victim)
                if victim == request:
                    break

    def _bring_back(self, view: PagedView, reserve: int) -> None:
        while view.swapped and len(view.running) < self.max_batch:
            request = view.swapped[0]
            if view.on_host[request] + 1 + reserve > view.pool.free or not view.swap_in(request):
                return
            view.extend(request, 1)
