"""Prompts and answers within the longest context of the model that serves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import RequestTrace


class FittedTrace(NamedTuple):
    """A trace as a model gets it, with the figures and warnings of what its context does not hold."""

    trace: RequestTrace
    metrics: Mapping[str, float]
    warnings: tuple[str, ...]


def fit_to_context(trace: RequestTrace, context: int, truncate: bool) -> FittedTrace:
    """Return ``trace`` as a model of ``context`` tokens gets it.

    With ``truncate`` a prompt that leaves its answer too little of the context loses its beginning; without,
    the engine refuses prompts over the context. An answer ends where the context does, as in vLLM, at its
    first token at the latest. Times that were measured are of the whole, and are compared with nothing then.
    """
    kept, said = _cut_prompts(trace, context) if truncate else (trace, ())
    room = np.maximum(context - kept.prompt, 1)
    over = (kept.output > room) & (kept.prompt <= context)
    count = int(over.sum())
    metrics = {"context_limited_requests": float(count)}
    if not count:
        return FittedTrace(kept, metrics, said)
    lost = int((kept.output - room)[over].sum())
    ended = (
        f"{count:,} of {len(trace):,} answers end at the model's context of {context:,} tokens: {lost:,} "
        "tokens of answers are left out"
    )
    kept = replace(kept, output=np.where(over, room, kept.output), measured=None)
    return FittedTrace(kept, metrics, (*said, ended))


def _cut_prompts(trace: RequestTrace, context: int) -> tuple[RequestTrace, tuple[str, ...]]:
    """The trace with prompts that leave room for their answers, and what to know of that.

    A block of a prompt that was cut is no block of another prompt any more.
    """
    room = np.maximum(context - trace.output, 1)
    over = trace.prompt > room
    if not over.any():
        return trace, ()
    hashes = trace.hashes
    if hashes is not None:
        blocks = (hashes[row] for row in range(len(trace)))
        hashes = Ragged.of([[] if cut else list(one) for cut, one in zip(over, blocks, strict=True)])
    count = int(over.sum())
    lost = int((trace.prompt - room)[over].sum())
    said = (
        f"{count:,} of {len(trace):,} prompts were cut to what the model's context of {context:,} tokens "
        f"leaves beside their answers: {lost:,} tokens in all"
    )
    prompt = np.where(over, room, trace.prompt)
    return replace(trace, prompt=prompt, hashes=hashes, measured=None), (said,)
