"""vLLM's first scheduler over paged KV memory, SOSP'23 (Kwon et al., sections 4.3 to 4.5).

A step is either of prompts or of decodes, prompts first. Waiting requests are admitted whole in the order
of arrival while blocks beyond a watermark, sequences and tokens last; one that could never fit is
rejected. Each decode needs at most one block more; where none is left, the latest request gives all of
its back: it is computed anew later (``recompute``), or copied to the host and back (``swap``), in the
order in which it left and before any new prompt. ``auto`` recomputes requests of a single sequence and swaps
those of several, as the paper does (4.5).

With several ``sequences`` each prompt has so many answers, drawn side by side or as the beams of a search;
they share the blocks of what they have in common (``interface/branched_view``), and give way together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.branches import Branches
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
    padded: bool = knob(False, "count a step's prompts as long as the longest of them, as the first versions")
    preemption: str = knob("auto", "what the latest gives way by", choices=("auto", "recompute", "swap"))

    sequences: int = knob(1, "answers to each prompt", low=1, high=64)
    decoding: str = knob("sampling", "how several answers come about", choices=("sampling", "beam"))

    @property
    def branches(self) -> Branches | None:
        return Branches(self.sequences, self.decoding == "beam") if self.sequences > 1 else None

    def begin(self) -> StepFiller:
        swaps = self.preemption == "swap" or (self.preemption == "auto" and self.sequences > 1)
        at_once = max(1, self.max_batch // self.sequences)
        return PromptsFirst(at_once, self.max_tokens, self.watermark, swaps, self.padded)
