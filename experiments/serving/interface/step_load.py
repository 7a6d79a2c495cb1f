"""What the time of a step over KV blocks depends on, and what prices it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Entry(NamedTuple):
    """``tokens`` of ``request`` after the ``context`` whose keys and values are there."""

    request: int
    tokens: int
    context: int


class StepLoad(NamedTuple):
    """Entries of one token are decodes, longer ones parts of prompts; contexts are those before the step.

    ``prefill`` tokens of prompts after ``prefill_context`` (summed over entries), which make
    ``prefill_pairs`` of a token and one it attends to; ``decodes`` over ``decode_context`` tokens together,
    the shortest and the longest of them apart. ``prompts``: tokens and context of each part of a prompt.
    ``drafts`` of the tokens have their next one computed too, besides the last of each sequence; they are in
    parts of prompts that are ``verified`` (tokens and context of each).
    """

    prefill: int
    prefill_context: int
    prefill_pairs: float
    decodes: int
    decode_context: int
    shortest: int
    longest: int
    sequences: int
    prompts: tuple[tuple[int, int], ...] = ()
    drafts: int = 0
    verified: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, entries: Sequence[Entry], drafted: Collection[int] = ()) -> StepLoad:
        """Return the load of ``entries``; of requests ``drafted`` all tokens but the first are drafts."""
        contexts = [context for _, tokens, context in entries if tokens == 1]
        prompts = [entry for entry in entries if entry[1] > 1] if len(contexts) < len(entries) else []
        pairs = sum(n * c + n * (n + 1) / 2 for _, n, c in prompts)
        verified = tuple([(n, c) for request, n, c in prompts if request in drafted]) if drafted else ()
        return cls(
            sum(entry.tokens for entry in prompts),
            sum(entry.context for entry in prompts),
            pairs,
            len(contexts),
            sum(contexts),
            min(contexts, default=0),
            max(contexts, default=0),
            len(entries),
            tuple([(tokens, context) for _, tokens, context in prompts]),
            sum(tokens - 1 for tokens, _ in verified),
            verified,
        )

    @property
    def tokens(self) -> int:
        return self.prefill + self.decodes

    def for_attention(self) -> StepLoad:
        """Return the load with verifications as decodes: their tokens read what is before them once."""
        if not self.verified:
            return self
        contexts = [context for _, context in self.verified]
        return self._replace(
            prefill=self.prefill - sum(tokens for tokens, _ in self.verified),
            prefill_context=self.prefill_context - sum(contexts),
            decodes=self.decodes + len(contexts),
            decode_context=self.decode_context + sum(contexts),
            shortest=min(*contexts, self.shortest) if self.decodes else min(contexts),
            longest=max(*contexts, self.longest),
        )

    @property
    def has_prompts(self) -> bool:
        """Whether parts of prompts are in it that are no verified drafts."""
        return len(self.prompts) > len(self.verified)

    def without_prompts(self) -> StepLoad:
        """Return its decodes and verified drafts alone."""
        return self._replace(
            prefill=sum(tokens for tokens, _ in self.verified),
            prefill_context=sum(context for _, context in self.verified),
            prefill_pairs=sum(n * c + n * (n + 1) / 2 for n, c in self.verified),
            sequences=self.sequences - len(self.prompts) + len(self.verified),
            prompts=self.verified,
        )

    @property
    def outputs(self) -> int:
        """Tokens whose next one is computed."""
        return self.sequences + self.drafts


class StepPrice(Protocol):
    """``seconds`` of a step and of the ``steps - 1`` after it, each decode with one more token of context.

    ``steps_beyond`` says how many of them, the last ones, lie outside what was measured; ``wake_seconds`` how
    much longer the first of them takes after ``idle`` seconds without any.
    """

    def seconds(self, load: StepLoad, steps: int = 1) -> Floats: ...

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int: ...

    def wake_seconds(self, idle: float) -> float: ...
