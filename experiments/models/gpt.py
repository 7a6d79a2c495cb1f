"""GPT-2 (Radford et al. 2019): pre-norm decoder, learned positions, tied output embedding, no dropout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.documents import divide
from experiments.models.documents import positions as positions_of
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification


class CausalAttention(nn.Module):
    """Multi-head self-attention over earlier tokens of the document; [batch, tokens, width] to the same.

    ``document`` tokens are one, 0: a whole sample.
    """

    def __init__(self, width: int, heads: int, document: int) -> None:
        super().__init__()
        self.heads, self.document = heads, document
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2)
        )
        if self.document:
            q, k, v = (divide(part, self.document) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int, document: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads, document)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.activation = nn.GELU(approximate="tanh")
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.contract(self.activation(self.expand(self.norm2(x))))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """Token ids [batch, tokens] to logits [batch, tokens, vocabulary]."""

    def __init__(
        self, layers: int, width: int, heads: int, vocabulary: int, positions: int, document: int = 0
    ) -> None:
        super().__init__()
        self.document = document
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, document) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def get_output_embeddings(self) -> nn.Module:
        """The head, by the name that ``transformers`` use."""
        return self.head

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        if self.document:
            places = positions_of(ids.shape[1], self.document, ids.device)
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def gpt(geometry: Geometry, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> Model:
    what = "document" if geometry.document else "sequence"
    length = geometry.document or geometry.sequence
    if length > positions:
        raise BadInput(f"{what} {length} is too long", f"options.{what}", f"at most {positions}")
    shape = (geometry.batch, geometry.sequence)
    batch = (InputSpec("ids", shape, vocabulary), InputSpec("target", shape, vocabulary))
    body = Gpt(layers, width, heads, vocabulary, positions, geometry.document)
    facts = {"document": geometry.document} if geometry.document else {}
    return Model(Objective(body, classification), batch, facts=facts)
