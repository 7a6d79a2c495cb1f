"""A GPT whose attention reads keys and values from blocks: a step over parts of many requests at once.

Token-wise operators run on all tokens of a step together, attention for each request apart (Orca, section
3.2). A layer writes the keys and values of all tokens before any attention reads, so that a block that one
request fills can be shared by another in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.core.errors import BadInput
from experiments.models.catalog import zoo_model
from experiments.models.gpt import Block, Gpt
from experiments.serving.live.kv import KvMemory

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Row(NamedTuple):
    """``ids`` of a request behind ``context`` tokens, whose KV is in ``blocks`` with room for theirs.

    Logits are wanted of the last ``wanted`` of them.
    """

    ids: Sequence[int]
    context: int
    blocks: Sequence[int]
    wanted: int


class PagedGpt:
    """A zoo GPT with weights drawn from a seed."""

    def __init__(self, body: Gpt, heads: int, positions: int, device: str) -> None:
        self.body = body.to(device).eval()
        self.heads, self.positions, self.device = heads, positions, device
        self.width = body.tokens.weight.shape[1]
        self.vocabulary = body.tokens.weight.shape[0]
        self.layers = len(body.blocks)
        self.dtype = body.tokens.weight.dtype

    def memory(self, blocks: int, size: int) -> KvMemory:
        """Return empty KV memory for this model."""
        dim = self.width // self.heads
        return KvMemory(self.layers, blocks, size, self.heads, dim, self.dtype, self.device)

    @torch.inference_mode()
    def run(self, rows: Sequence[Row], memory: KvMemory) -> list[Tensor]:
        """Compute a step; the logits [wanted, vocabulary] of each row."""
        ids, places, slots = self.index(rows, memory.size)
        ways = [self.reads(row, memory.size) for row in rows]
        x = self.embed(ids, places)
        for layer, block in enumerate(self.body.blocks):
            x = self.layer(layer, block, x, rows, slots, ways, memory)  # type: ignore[arg-type]
        return self.logits(x, rows)

    def index(self, rows: Sequence[Row], size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids, positions and KV slots of all tokens of a step."""
        ids = [token for row in rows for token in row.ids]
        places = [row.context + offset for row in rows for offset in range(len(row.ids))]
        slots = [
            row.blocks[place // size] * size + place % size
            for row in rows
            for place in range(row.context, row.context + len(row.ids))
        ]
        return tuple(torch.tensor(one, device=self.device) for one in (ids, places, slots))  # type: ignore[return-value]

    def reads(self, row: Row, size: int) -> Tensor:
        """Return the slots of everything that the row's tokens may attend to."""
        total = row.context + len(row.ids)
        blocks = torch.tensor(row.blocks[: -(-total // size)], device=self.device)
        offsets = torch.arange(size, device=self.device)
        return (blocks[:, None] * size + offsets).flatten()[:total]

    def embed(self, ids: Tensor, places: Tensor) -> Tensor:
        x: Tensor = self.body.tokens(ids) + self.body.positions(places)
        return x

    def layer(
        self,
        place: int,
        block: Block,
        x: Tensor,
        rows: Sequence[Row],
        slots: Tensor,
        ways: Sequence[Tensor],
        memory: KvMemory,
    ) -> Tensor:
        q, k, v = self.project_in(block, x)
        memory.write(place, slots, k, v)
        mixed = self.attend(place, q, rows, ways, memory)
        return self.project_out(block, x, mixed)

    def project_in(self, block: Block, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [tokens, heads, head dim]."""
        parts = block.attention.qkv(block.norm1(x)).chunk(3, dim=1)
        q, k, v = (part.view(len(x), self.heads, -1) for part in parts)
        return q, k, v

    def attend(
        self, place: int, q: Tensor, rows: Sequence[Row], ways: Sequence[Tensor], memory: KvMemory
    ) -> Tensor:
        """Return attention's output [tokens, width], request by request."""
        found, begin = [], 0
        for row, way in zip(rows, ways, strict=True):
            count = len(row.ids)
            keys, values = memory.read(place, way)
            found.append(_attention(q[begin : begin + count], keys, values, row.context))
            begin += count
        return torch.cat(found).reshape(len(q), self.width)

    def project_out(self, block: Block, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + block.attention.project(mixed)
        return x + block.contract(block.activation(block.expand(block.norm2(x))))  # type: ignore[no-any-return]

    def logits(self, x: Tensor, rows: Sequence[Row]) -> list[Tensor]:
        """Return those of the tokens that are wanted, row by row."""
        ends: list[int] = []
        begin = 0
        for row in rows:
            begin += len(row.ids)
            ends += range(begin - row.wanted, begin)
        if not ends:
            return [x.new_empty(0, self.vocabulary) for _ in rows]
        wanted = self.body.head(self.body.norm(x[torch.tensor(ends, device=self.device)]))
        return list(wanted.split([row.wanted for row in rows]))


def _attention(q: Tensor, keys: Tensor, values: Tensor, context: int) -> Tensor:
    """Return [tokens, heads, head dim]: token i attends to ``context`` + i + 1 tokens."""
    q, keys, values = (one.transpose(0, 1)[None] for one in (q, keys, values))
    count = q.shape[2]
    if count == 1:
        mixed = F.scaled_dot_product_attention(q, keys, values)
    elif context == 0:
        mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
    else:
        mask = torch.ones(count, context + count, dtype=torch.bool, device=q.device).tril(context)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    return mixed[0].transpose(0, 1)


def build(source: str, dtype: str, seed: int, device: str = "cpu") -> PagedGpt:
    """Build a GPT of the zoo; ``BadInput`` for a model that has no such engine."""
    known = zoo_model(source.removeprefix("zoo:")) if source.startswith("zoo:") else None
    if known is None or known.builder != "gpt:gpt":
        raise BadInput(
            f"{source!r:.60} cannot be served here", "options.model", "zoo:gpt2-mini, zoo:gpt2 ..."
        )
    if dtype not in DTYPES:
        raise BadInput(f"dtype {dtype}", "options.dtype", ", ".join(DTYPES))
    sizes = known.arguments
    torch.manual_seed(seed)
    body = Gpt(sizes["layers"], sizes["width"], sizes["heads"], sizes["vocabulary"], sizes["positions"])
    return PagedGpt(body.to(DTYPES[dtype]), sizes["heads"], sizes["positions"], device)
