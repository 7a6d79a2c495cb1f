"""A GPT whose attention reads keys and values from blocks: a step over parts of many requests at once.

Token-wise operators run on all tokens of a step together. Attention runs for each request apart (Orca,
section 3.2), or for all of them in one kernel where the device has one for unequal lengths. A layer writes
the keys and values of all tokens before any attention reads, so that a block that one request fills can be
shared by another in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

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


#: Of the kernel for unequal lengths (FlashAttention), on CUDA.
HALVES = (torch.bfloat16, torch.float16)
CAUSAL = (-1, 0)
#: How near two kernels come in numbers of 16 bits.
KERNEL_TOLERANCE = 0.05


class Row(NamedTuple):
    """``ids`` of a request behind ``context`` tokens, whose KV is in ``blocks`` with room for theirs.

    The last ``padding`` of them are computed for nothing; logits are wanted of ``wanted`` before those.
    ``masked`` tokens behind are read and not attended to, where rows are computed one by one.
    """

    ids: Sequence[int]
    context: int
    blocks: Sequence[int]
    wanted: int
    padding: int = 0
    masked: int = 0


@dataclass(frozen=True)
class StepIndex:
    """Where the tokens of a step stand; tensors [tokens] but ``reads``.

    ``reads``   slots of everything that is attended to, row after row.
    ``counts``  new tokens of each row, ``totals`` that are read for it.
    ``bounds``  where the rows begin in both, for one kernel over all; ``None``: row by row.
    """

    ids: Tensor
    places: Tensor
    slots: Tensor
    reads: Tensor
    counts: list[int]
    totals: list[int]
    contexts: list[int]
    bounds: tuple[Tensor, Tensor] | None


class PagedGpt:
    """A zoo GPT with weights drawn from a seed."""

    def __init__(self, body: Gpt, heads: int, positions: int, device: str) -> None:
        self.body = body.to(device).eval()
        self.heads, self.positions, self.device = heads, positions, device
        self.width = body.tokens.weight.shape[1]
        self.vocabulary = body.tokens.weight.shape[0]
        self.layers = len(body.blocks)
        self.dtype = body.tokens.weight.dtype
        self.on_cuda = torch.device(device).type == "cuda"
        #: Attention of all rows in one kernel.
        self.in_one = self.on_cuda and self.dtype in HALVES and _has_kernel(self.dtype, device)

    def memory(self, blocks: int, size: int) -> KvMemory:
        """Return empty KV memory for this model."""
        dim = self.width // self.heads
        return KvMemory(self.layers, blocks, size, self.heads, dim, self.dtype, self.device)

    @torch.inference_mode()
    def run(self, rows: Sequence[Row], memory: KvMemory) -> list[Tensor]:
        """Compute a step; the logits [wanted, vocabulary] of each row."""
        step = self.index(rows, memory.size)
        x = self.embed(step)
        for layer, block in enumerate(self.body.blocks):
            x = self.layer(layer, block, x, step, memory)  # type: ignore[arg-type]
        return self.logits(x, rows)

    def finish(self) -> None:
        """Return when everything that was asked of the device is done."""
        if self.on_cuda:
            torch.cuda.synchronize(self.device)

    def index(self, rows: Sequence[Row], size: int) -> StepIndex:
        """Return ids, positions and KV slots of all tokens of a step."""
        counts = [len(row.ids) for row in rows]
        ends = [row.context + count for row, count in zip(rows, counts, strict=True)]
        totals = ends if self.in_one else [end + row.masked for end, row in zip(ends, rows, strict=True)]
        offsets, reads = np.arange(size), []
        for row, total in zip(rows, totals, strict=True):
            blocks = np.array(row.blocks[: -(-total // size)])
            reads.append((blocks[:, None] * size + offsets).ravel()[:total])
        contexts = [row.context for row in rows]
        spans = [slice(context, end) for context, end in zip(contexts, ends, strict=True)]
        slots = [found[span] for found, span in zip(reads, spans, strict=True)]
        places = np.concatenate([np.arange(span.start, span.stop) for span in spans])
        return StepIndex(
            self._there(np.array([token for row in rows for token in row.ids])),
            self._there(np.minimum(places, self.positions - 1)),
            self._there(np.concatenate(slots)),
            self._there(np.concatenate(reads)),
            counts,
            totals,
            contexts,
            (self._bounds(counts), self._bounds(totals)) if self.in_one else None,
        )

    def _there(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def _bounds(self, counts: Sequence[int]) -> Tensor:
        return self._there(np.cumsum([0, *counts], dtype=np.int32))

    def embed(self, step: StepIndex) -> Tensor:
        x: Tensor = self.body.tokens(step.ids) + self.body.positions(step.places)
        return x

    def layer(self, place: int, block: Block, x: Tensor, step: StepIndex, memory: KvMemory) -> Tensor:
        q, k, v = self.project_in(block, x)
        memory.write(place, step.slots, k, v)
        return self.project_out(block, x, self.attend(place, q, step, memory))

    def project_in(self, block: Block, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [tokens, heads, head dim]."""
        parts = block.attention.qkv(block.norm1(x)).chunk(3, dim=1)
        q, k, v = (part.view(len(x), self.heads, -1) for part in parts)
        return q, k, v

    def attend(self, place: int, q: Tensor, step: StepIndex, memory: KvMemory) -> Tensor:
        """Return attention's output [tokens, width]."""
        keys, values = memory.read(place, step.reads)
        if step.bounds is not None:
            longest = (max(step.counts), max(step.totals))
            mixed = varlen_attn(q, keys, values, *step.bounds, *longest, window_size=CAUSAL)
            assert isinstance(mixed, Tensor)
            return mixed.reshape(len(q), self.width)
        rows = zip(
            torch.split(q, step.counts),
            torch.split(keys, step.totals),
            torch.split(values, step.totals),
            step.contexts,
            strict=True,
        )
        return torch.cat([_attention(*row) for row in rows]).reshape(len(q), self.width)

    def project_out(self, block: Block, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + block.attention.project(mixed)
        return x + block.contract(block.activation(block.expand(block.norm2(x))))  # type: ignore[no-any-return]

    def logits(self, x: Tensor, rows: Sequence[Row]) -> list[Tensor]:
        """Return those of the tokens that are wanted, row by row."""
        ends: list[int] = []
        begin = 0
        for row in rows:
            begin += len(row.ids)
            ends += range(begin - row.padding - row.wanted, begin - row.padding)
        if not ends:
            return [x.new_empty(0, self.vocabulary) for _ in rows]
        wanted = self.body.head(self.body.norm(x[torch.tensor(ends, device=self.device)]))
        return list(wanted.split([row.wanted for row in rows]))


@torch.inference_mode()
def _has_kernel(dtype: torch.dtype, device: str) -> bool:
    """Whether the kernel for unequal lengths is there, and gives what row by row gives."""
    drawn = torch.Generator(device).manual_seed(0)
    q, keys, values = (
        torch.randn(tokens, 2, 64, dtype=dtype, device=device, generator=drawn) for tokens in (6, 24, 24)
    )
    counts, totals = ([5, 1], [13, 11])
    first, second = (
        torch.tensor([0, one, one + other], dtype=torch.int32, device=device)
        for one, other in (counts, totals)
    )
    try:
        found = varlen_attn(q, keys, values, first, second, 5, 13, window_size=CAUSAL)
    except (RuntimeError, TypeError):
        return False
    parts = zip(
        torch.split(q, counts), torch.split(keys, totals), torch.split(values, totals), (8, 10), strict=True
    )
    wanted = torch.cat([_attention(*part) for part in parts])
    assert isinstance(found, Tensor)
    return bool(torch.allclose(found, wanted, rtol=KERNEL_TOLERANCE, atol=KERNEL_TOLERANCE))


def _attention(q: Tensor, keys: Tensor, values: Tensor, context: int) -> Tensor:
    """Return [tokens, heads, head dim]: token i attends to ``context`` + i + 1 tokens."""
    q, keys, values = (one.transpose(0, 1)[None] for one in (q, keys, values))
    count, total = q.shape[2], keys.shape[2]
    if count == 1 and total == context + 1:
        mixed = F.scaled_dot_product_attention(q, keys, values)
    elif context == 0 and total == count:
        mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
    else:
        mask = torch.ones(count, total, dtype=torch.bool, device=q.device).tril(context)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    return mixed[0].transpose(0, 1)


def choose(found: Sequence[Tensor]) -> list[list[int]]:
    """Return the most likely token at each place of each row's logits."""
    ids: list[int] = torch.cat(list(found)).argmax(dim=-1).tolist()
    ends = np.cumsum([len(one) for one in found]).tolist()
    return [ids[end - len(one) : end] for one, end in zip(found, ends, strict=True)]


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
