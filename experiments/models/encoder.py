"""Transformer encoders: BERT (Devlin et al. 2019) with its pre-training heads, and ViT (Dosovitskiy et al.
2021).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification
from experiments.models.vision import CLASSES, image_batch

PATCH = 16


class SelfAttention(nn.Module):
    """Multi-head attention over all tokens; [batch, tokens, width] to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.project = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class EncoderBlock(nn.Module):
    """``norm_first`` is ViT's order; BERT normalizes after each sum. ``eps`` is the layer norms'."""

    def __init__(self, width: int, heads: int, norm_first: bool, eps: float) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = SelfAttention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed(self.norm2(x))  # type: ignore[no-any-return]
        x = self.norm1(x + self.attention(x))
        out: Tensor = self.norm2(x + self.feed(x))
        return out


class BertEncoder(nn.Module):
    """Token ids [batch, tokens] to states [batch, tokens, width] and a pooled first token [batch, width]."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, False, 1e-12) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        for embedding in (self.tokens, self.positions, self.segments):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.tokens(ids) + self.segments(segments) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


class BertPretraining(nn.Module):
    """Masked-token logits with the tied embedding, and next-sentence logits.

    The loss is their sum (section 3.1). Every position is predicted, as the usual implementations compute it;
    the 15 % that are masked only pick targets.
    """

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.encoder = BertEncoder(layers, width, heads, vocabulary, positions)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, 1e-12))
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = self.encoder.tokens.weight
        self.next_sentence = nn.Linear(width, 2)

    def forward(self, ids: Tensor, segments: Tensor, *targets: Tensor) -> Tensor:
        states, pooled = self.encoder(ids, segments)
        logits: Tensor = self.decoder(self.transform(states))
        if not self.training:
            return logits
        tokens, follows = targets
        return classification(logits, tokens) + classification(self.next_sentence(pooled), follows)


def bert(geometry: Geometry, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> Model:
    if geometry.sequence > positions:
        raise BadInput(
            f"sequence {geometry.sequence} is too long", "options.sequence", f"at most {positions}"
        )
    shape = (geometry.batch, geometry.sequence)
    inputs = (InputSpec("ids", shape, vocabulary), InputSpec("segments", shape, 2))
    targets = (InputSpec("target", shape, vocabulary), InputSpec("follows", (geometry.batch,), 2))
    return Model(BertPretraining(layers, width, heads, vocabulary, positions), (*inputs, *targets), targets=2)


class VisionTransformer(nn.Module):
    """[batch, 3, image, image] to class logits, from the class token (section 3.1)."""

    def __init__(self, image: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (image // PATCH) ** 2 + 1, width))
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, True, 1e-6) for _ in range(layers))
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        patches = self.patches(pictures).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(patches), -1, -1), patches), 1) + self.positions
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def vit(geometry: Geometry, layers: int, width: int, heads: int) -> Model:
    if geometry.image % PATCH:
        raise BadInput(
            f"image {geometry.image} is not made of patches", "options.image", f"a multiple of {PATCH}"
        )
    body = VisionTransformer(geometry.image, layers, width, heads)
    return Model(Objective(body, classification), image_batch(geometry))
