"""Blocks of the devices that set a pipeline's pace or fill its memory: its first, its fullest, its last."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.parallel.planning.transformers.blocks import blocks_by_chunk
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: The devices that are looked at: the first, of those between the first that has most blocks, the last.
FIRST, INNER, LAST = range(3)
#: From so many micro-batches for each device on, more of them change nothing about what is held at once.
ROUNDS = 4


@dataclass(frozen=True)
class Chunks:
    """Blocks of three devices of each of many pipelines, as columns.

    Shape (plans, 3) for the columns over devices, of which a pipeline of two has no inner one: none of its
    blocks count.

    - ``total``: blocks of a device.
    - ``held``: those whose activations are held at once: of each chunk times its micro-batches.
    - ``first``, ``last``: blocks of a pipeline's first and last chunk. Shape (plans,).
    """

    total: Floats
    held: Floats
    first: Floats
    last: Floats


def chunks_of(
    blocks: int, pipeline: Ints, chunks: Ints, micro_batches: Ints, embedding: Ints, head: Ints, extra: Ints
) -> Chunks:
    """Return the columns for plans; equal ones are looked at once."""
    enough = np.minimum(micro_batches, ROUNDS * pipeline)
    keys = np.stack([pipeline, chunks, enough, embedding, head, extra], 1)
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    rows = [_row(blocks, *map(int, key)) for key in distinct]
    columns = (np.array(column, np.float64)[place.reshape(-1)] for column in zip(*rows, strict=True))
    return Chunks(*columns)


@functools.lru_cache(maxsize=65536)
def _row(
    blocks: int, pipeline: int, chunks: int, micro_batches: int, embedding: int, head: int, extra: int
) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    table = blocks_by_chunk(blocks, pipeline, chunks, embedding, head, extra)
    totals = table.sum(1)
    inner = 1 + int(totals[1:-1].argmax()) if pipeline > 2 else None
    devices = (0, inner, pipeline - 1)
    return (
        tuple(0 if d is None else int(totals[d]) for d in devices),
        tuple(0 if d is None else held_blocks(table[d], d, pipeline, micro_batches) for d in devices),
        int(table[0, 0]),
        int(table[-1, -1]),
    )


def held_blocks(chunks: Sequence[int] | Ints, device: int, pipeline: int, micro_batches: int) -> int:
    """Return the most blocks whose activations a device holds at once, each for every micro-batch."""
    count, ahead = len(chunks), pipeline - device - 1
    passes = micro_batches * count
    warm_up = min(2 * ahead + (count - 1) * pipeline if count > 1 else ahead, passes - 1)
    order = np.arange(passes) // pipeline % count
    own = np.asarray(chunks)
    made, dropped = np.cumsum(own[order]), np.cumsum(own[count - 1 - order])
    left = np.concatenate([[0], dropped[: passes - warm_up - 1]])
    return int((made[warm_up:] - left).max())
