"""Token ids for the prompts of a trace: equal blocks where its hashes say so, drawn from the seed."""

from __future__ import annotations

import numpy as np

from experiments.workloads.requests import RequestTrace


def prompts_of(trace: RequestTrace, vocabulary: int, seed: int) -> list[list[int]]:
    """Return the ids of each prompt."""
    keys = trace.hashes.lists() if trace.hashes is not None else [[]] * len(trace)
    blocks: dict[int, list[int]] = {}
    found = []
    for request, (prompt, row) in enumerate(zip(trace.prompt.tolist(), keys, strict=True)):
        ids: list[int] = []
        for key in row[: prompt // trace.block] if trace.block else ():
            if key not in blocks:
                blocks[key] = _draw((seed, 1, key), vocabulary, trace.block)
            ids += blocks[key]
        found.append(ids + _draw((seed, 2, request), vocabulary, prompt - len(ids)))
    return found


def _draw(seeds: tuple[int, ...], vocabulary: int, count: int) -> list[int]:
    rng = np.random.default_rng([abs(one) for one in seeds])
    ids: list[int] = rng.integers(vocabulary, size=count).tolist()
    return ids
