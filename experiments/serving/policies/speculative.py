"""Speculative decoding, ICML'23 (Leviathan, Kalman and Matias): a small model drafts, the large one verifies.

Behind the last token of each answer ``draft_tokens`` are drafted one after another (gamma in the paper) and
verified in one pass of the served model; those before the first wrong one come out, and one more that the
pass itself gives. The rest of a step is the unified scheduler's. ``acceptance`` (alpha) and ``draft_cost``
(c: a drafted token's time over that of a decode pass for the same requests) are properties of two models and
a task, which a trace does not tell: they are knobs, and how many tokens are right is drawn from the seed.

``draft_tokens`` 0 takes the number with the best improvement by theorem 3.8. The theorem takes verification
of several tokens to be as fast as one; here its layers are priced by its tokens, and attention by the
context that they read together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.paged import PagedPolicy, StepFiller
from experiments.serving.interface.speculation import Speculation
from experiments.serving.planning.unified_steps import UnifiedSteps

#: The most tokens that are considered where the number is chosen.
MOST_DRAFTS = 32


@dataclass(frozen=True)
class Speculative(PagedPolicy):
    """Several tokens of an answer in one pass: a small model drafts them, the served one verifies."""

    name: ClassVar[str] = "speculative"
    mechanism: ClassVar[str] = "draft and verify"
    exceptions: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "closed_form": "a pass may give several tokens, as the run's seed draws them",
            "bound": "a pass may give several tokens, so that fewer passes are made",
        }
    )

    max_batch: int = knob(256, "sequences at once", low=1, high=65536)
    token_budget: int = knob(2048, "tokens in one step", low=1, high=10**6, unit="tokens")
    draft_tokens: int = knob(4, "tokens drafted for each pass; 0: the best by alpha and c", low=0, high=64)
    acceptance: float = knob(0.7, "probability that a drafted token is accepted (alpha)", low=0.0, high=1.0)
    draft_cost: float = knob(
        0.05, "time of a drafted token over that of a decode pass (c)", low=0.0, high=10.0
    )

    @property
    def speculation(self) -> Speculation:
        return Speculation(self.acceptance, self.draft_cost)

    @property
    def drafts(self) -> int:
        """Tokens that are drafted for each pass."""
        if self.draft_tokens:
            return self.draft_tokens
        return max(range(1, MOST_DRAFTS + 1), key=self.speculation.improvement)

    def begin(self) -> StepFiller:
        return UnifiedSteps(self.max_batch, self.token_budget, self.token_budget, self.drafts)
