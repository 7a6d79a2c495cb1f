"""Prompts and the longest context of the model that serves them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import RequestTrace


def fit_to_context(trace: RequestTrace, context: int, truncate: bool) -> tuple[RequestTrace, tuple[str, ...]]:
    """The trace as a model of ``context`` tokens gets it, and what to know of that.

    With ``truncate`` a prompt that leaves its answer too little of the context loses its beginning; a block
    of it is then no block of another prompt any more. Without, the engine refuses prompts over the context.
    """
    room = np.maximum(context - trace.output, 1)
    over = trace.prompt > room
    if not truncate or not over.any():
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
    return replace(trace, prompt=np.where(over, room, trace.prompt), hashes=hashes), (said,)
