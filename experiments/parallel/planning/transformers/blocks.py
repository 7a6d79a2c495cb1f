"""How many blocks of a transformer each chunk of a pipeline has.

Devices differ by one block at most, and so do chunks. Embedding and head may count as blocks of the chunk
that has them, so that this one gets fewer: Llama 3 (Dubey et al., 2024, section 3.3.2) takes a block from the
first and from the last stage, Megatron-Core counts embedding and loss as a block each
(account-for-embedding-in-pipeline-split), torchtitan weighs both (input_weight, output_weight), nanotron
the head by its FLOPs. There a stage has the block that crosses its share as well (models/base.py:
build_model), so that the first has one more and the last one fewer.
"""

from __future__ import annotations

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints


def blocks_by_chunk(
    blocks: int, pipeline: int, chunks: int, embedding: int = 0, head: int = 0, extra: int = 0
) -> Ints:
    """Return the blocks of each chunk of each device. Shape: (pipeline, chunks).

    Where they do not come out even, some devices have one more, in the last of their chunks that have
    fewest. ``embedding`` and ``head`` are the blocks for which the ends count; the first chunk has ``extra``
    more than that, the last fewer. 126 blocks on 16 devices of 7 chunks are 7 or 8 a device; where both ends
    count as one, 8 chunks are one block each, but for the first and the last, which have none.
    """
    counted = blocks + embedding + head
    devices = np.diff(counted * np.arange(pipeline + 1) // pipeline)
    found: Ints = devices[:, None] // chunks + (np.arange(chunks) >= chunks - devices[:, None] % chunks)
    found[0, 0] += extra - embedding
    found[-1, -1] -= extra + head
    return found


def refuse_too_few_blocks(
    blocks: int, pipeline: int, chunks: int, embedding: int, head: int, extra: int
) -> None:
    """``BadInput`` where a chunk would be empty, or an end counts as more than its chunk has."""
    counted = blocks + embedding + head
    if counted < pipeline * chunks:
        what = f"{counted} blocks cannot make {pipeline} x {chunks} stages"
        raise BadInput(what, "knobs.pipeline", f"at most {counted} stages")
    found = blocks_by_chunk(blocks, pipeline, chunks, embedding, head, extra)
    if found[-1, -1] < 0 <= found[-1, -1] + extra:
        what = f"the last chunk has {found[-1, -1] + extra} blocks, and {extra} fewer are asked for"
        raise BadInput(what, "knobs.first_extra", f"at most {found[-1, -1] + extra}")
    for name, counts, left in (("embedding", embedding, found[0, 0]), ("head", head, found[-1, -1])):
        if left < 0:
            what = f"the {name} counts as {counts} blocks, its chunk has {left + counts}"
            raise BadInput(what, f"knobs.{name}_blocks", f"at most {left + counts}")
