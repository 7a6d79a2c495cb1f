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
from experiments.serving.interface.paged import PagedPolicy, StepFiller
from experiments.serving.planning.prompts_first import PromptsFirst


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
        return PromptsFirst(self.max_batch, self.max_tokens, self.watermark, self.preemption == "swap")
