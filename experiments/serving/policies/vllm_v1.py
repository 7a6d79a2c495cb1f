"""vLLM's unified scheduler (V1): every request catches up with its known tokens, within a budget a step.

No phase exists: a running request gets ``min(known - computed, budget)`` tokens in the order of
admission, then waiting ones are admitted in the order of arrival while budget, sequences and free blocks
for all that is known of them last. Blocks missing for a running request are taken from the last admitted
one, which waits at the head of the queue again; in such a step nobody is admitted. Full blocks are found
again by the hash of their content and all before it (Kwon et al., SOSP 2023; the scheduler of vLLM 0.19).

What it leaves open: ``overhead`` of a step beyond its kernels, 0 unless given (work on the processor is
hidden by asynchronous scheduling)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.paged import PagedPolicy, StepFiller
from experiments.serving.planning.unified_steps import UnifiedSteps


@dataclass(frozen=True)
class VllmV1(PagedPolicy):
    """Decodes and parts of prompts share a budget of tokens; blocks of known content are found again."""

    name: ClassVar[str] = "vllm_v1"
    mechanism: ClassVar[str] = "every iteration"

    max_batch: int = knob(256, "sequences at once", low=1, high=65536)
    token_budget: int = knob(2048, "tokens in one step", low=1, high=10**6, unit="tokens")
    longest_chunk: int = knob(0, "tokens of one prompt in a step; 0: the budget", low=0, high=10**6)
    prefix_caching: bool = knob(True, "find blocks of known content again")

    @property
    def caches_prefixes(self) -> bool:
        return self.prefix_caching

    def begin(self) -> StepFiller:
        return UnifiedSteps(self.max_batch, self.token_budget, self.longest_chunk or self.token_budget)
