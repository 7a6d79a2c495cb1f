"""Tokens that a small model drafts and the served one verifies in one pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speculation:
    """Each drafted token is accepted with probability ``acceptance`` if all before it were.

    A token drafted for the same requests takes ``cost`` of a decode pass of the served model (Leviathan et
    al., ICML 2023, definition 3.1 and section 3.3: alpha and c).
    """

    acceptance: float
    cost: float

    def expected_tokens(self, drafts: int) -> float:
        """Return the mean tokens of a verification (equation 1): (1 - a^(k+1)) / (1 - a)."""
        if self.acceptance == 1:
            return float(drafts + 1)
        return (1 - self.acceptance ** (drafts + 1)) / (1 - self.acceptance)

    def improvement(self, drafts: int) -> float:
        """Return by how much answers are faster (theorem 3.8): expected tokens over k c + 1."""
        return self.expected_tokens(drafts) / (drafts * self.cost + 1)
