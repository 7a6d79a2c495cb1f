"""``calculon-model``: the sheet of a GPT-like transformer as the analytic model Calculon (SC'23) reads it.

``{"hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks"}``: every block is attention of
``attn_heads`` heads of ``attn_size`` each (their product need not be ``hidden``) and a two-matrix MLP. The sheet has no
vocabulary, so embedding and logits are not counted, as in Calculon itself.

FLOPs count the matrix products: a multiply and an add for each of their terms, twice that in the backward pass
(Korthikanti et al., MLSys'23, section 5, appendix A). Activations kept are those of section 4.1 there, with dropout:
for 16-bit values and ``feedforward = 4 hidden`` they are s b h (34 + 5 a s / h) bytes. Times are left to the roofline.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.spec import WorkloadOptions
from experiments.core.units import DTYPE_BYTES
from experiments.readers.base import Reader, Reading
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged

#: Field of the sheet: its largest value.
LIMITS = {
    "hidden": 2**20,
    "feedforward": 2**22,
    "seq_size": 2**22,
    "attn_heads": 65536,
    "attn_size": 65536,
    "num_blocks": 10_000,
}
LARGEST_FILE = 2**16


@dataclass(frozen=True)
class Block:
    """Sizes of one transformer block; counts are for one sample of ``sequence`` tokens."""

    hidden: int
    feedforward: int
    sequence: int
    heads: int
    head_size: int

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_size

    @property
    def parameters(self) -> int:
        """Weights and biases of query, key, value and output, of both MLP matrices, and two layer norms."""
        attention = 4 * self.hidden * self.attention_width + 3 * self.attention_width + self.hidden
        mlp = 2 * self.hidden * self.feedforward + self.feedforward + self.hidden
        return attention + mlp + 4 * self.hidden

    @property
    def forward_flops(self) -> float:
        projections = 8 * self.sequence * self.hidden * self.attention_width
        scores_and_context = 4 * self.sequence**2 * self.attention_width
        mlp = 4 * self.sequence * self.hidden * self.feedforward
        return float(projections + scores_and_context + mlp)

    def stash_bytes(self, size: int) -> float:
        """Kept for the backward pass with ``size`` bytes a value and one byte for each entry of a dropout mask."""
        inputs = 4 * size * self.hidden  # of both layer norms, of the projections and of the MLP
        query_key_value_context = 4 * size * self.attention_width
        mlp = 2 * size * self.feedforward  # before and after the nonlinearity
        masks = 2 * self.hidden
        maps = self.heads * self.sequence * (2 * size + 1)  # softmax and its dropout, with the mask
        return float(self.sequence * (inputs + query_key_value_context + mlp + masks + maps))


def _recognises(head: bytes, name: str) -> bool:
    return head.lstrip()[:1] == b"{" and b'"attn_heads"' in head and b'"num_blocks"' in head


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    if len(data) > LARGEST_FILE:
        raise BadInput(f"{len(data)} bytes", name, f"a model sheet of at most {LARGEST_FILE} bytes")
    content = jsonio.loads(data, name)
    if not isinstance(content, dict):
        raise BadInput(f"{content!r:.80} is not an object", name, "a JSON object")
    sizes = {field: _size(content.get(field), field, name) for field in LIMITS}
    unknown = sorted(set(content) - set(LIMITS))
    block = Block(
        sizes["hidden"],
        sizes["feedforward"],
        options.sequence or sizes["seq_size"],
        sizes["attn_heads"],
        sizes["attn_size"],
    )
    graph = _graph(block, sizes["num_blocks"], PurePath(name).stem, options)
    assumed = [
        "the sheet has no vocabulary: embedding and logits are not counted",
        f"{graph.facts['dtype']} values, dropout in every block, activations kept as MLSys'23 counts them",
    ]
    warnings = [f"unknown fields are ignored: {', '.join(unknown)[:200]}"] if unknown else []
    if block.attention_width != block.hidden:
        warnings.append(
            f"{block.heads} heads of {block.head_size} are {block.attention_width} wide, not {block.hidden}"
        )
    return Reading(graph, tuple(assumed), tuple(warnings))


def _size(value: Any, field: str, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LIMITS[field]:
        raise BadInput(f"{field} = {value!r:.80}", name, f"a whole number from 1 to {LIMITS[field]}")
    return value


def _graph(block: Block, blocks: int, name: str, options: WorkloadOptions) -> LayerGraph:
    """A layer for each block, for ``options.batch`` samples (one by default) of mixed precision by default."""
    batch, dtype = options.batch or 1, options.dtype or "float16"
    size = DTYPE_BYTES[dtype]
    column = np.ones(blocks)
    return LayerGraph(
        name=name,
        layer=tuple(f"blocks.{number}" for number in range(blocks)),
        kind=("transformer_block",) * blocks,
        forward_seconds=column * np.nan,
        backward_seconds=column * np.nan,
        forward_flops=column * block.forward_flops * batch,
        backward_flops=column * 2 * block.forward_flops * batch,
        parameter_bytes=column * block.parameters * size,
        output_bytes=column * block.sequence * block.hidden * size * batch,
        stash_bytes=column * block.stash_bytes(size) * batch,
        predecessors=Ragged.of([number - 1] if number else [] for number in range(blocks)),
        batch=batch,
        facts={
            "batch": batch,
            "dtype": dtype,
            "optimizer": options.optimizer or "adam",
            "sequence": block.sequence,
            "hidden": block.hidden,
            "feedforward": block.feedforward,
            "attention_heads": block.heads,
            "attention_size": block.head_size,
        },
    )


READER = Reader(
    "calculon-model", "layers", "a transformer's sizes as Calculon reads them", _recognises, _read
)
