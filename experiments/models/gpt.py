"""GPT-2 (Radford et al. 2019): pre-norm decoder, learned positions, tied output embedding, no dropout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification


class CausalAttention(nn.Module):
    """Multi-head self-attention over earlier tokens; [batch, tokens, width] to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.activation = nn.GELU(approximate="tanh")
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.contract(self.activation(self.expand(self.norm2(x))))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """Token ids [batch, tokens] to logits [batch, tokens, vocabulary]."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
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
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def gpt(geometry: Geometry, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> Model:
    if geometry.sequence > positions:
        raise BadInput(
            f"sequence {geometry.sequence} is too long", "options.sequence", f"at most {positions}"
        )
    shape = (geometry.batch, geometry.sequence)
    batch = (InputSpec("ids", shape, vocabulary), InputSpec("target", shape, vocabulary))
    return Model(Objective(Gpt(layers, width, heads, vocabulary, positions), classification), batch)
