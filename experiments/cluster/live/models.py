"""Three small models that train in milliseconds a step, and what they train on, all made from a seed.

Every random number of a step is drawn for the whole batch by each process of a gang, which then takes its
part: so a gang of any size sees what one process sees. Nothing in them has a bend, at which the last bit of a
sum could decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.cluster.live.training_jobs import BATCHES

CLASSES, SAMPLES = 16, 512
#: Noise that is added to what a model reads, as a share of its spread.
NOISE = 0.1


@dataclass(frozen=True)
class TrainingTask:
    """A model, what it is trained on, and how many samples a step takes."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    batch: int

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Return a batch from torch's own generator: which samples, and the noise on them."""
        chosen = torch.randint(len(self.inputs), (count,))
        read = self.inputs[chosen]
        if read.is_floating_point():
            read = read + NOISE * torch.randn(read.shape)
        return read, self.targets[chosen]


class TinyGpt(nn.Module):
    """Embeddings, two blocks of causal attention and a perceptron, and the next token's logits at the end."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2, length: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(CLASSES, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, length) in, logits (batch, classes) of what comes next out."""
        where = torch.arange(tokens.shape[1], device=tokens.device)
        seen = self.blocks(self.tokens(tokens) + self.places(where), mask=self.mask)
        logits: Tensor = self.head(seen[:, -1])
        return logits


def perceptron() -> TrainingTask:
    model = nn.Sequential(
        nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, CLASSES)
    )
    return _taught(model, torch.randn(SAMPLES, 256), BATCHES["mlp"])


def convolutions() -> TrainingTask:
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 6 * 6, CLASSES)),
    )
    return _taught(model, torch.randn(SAMPLES, 3, 24, 24), BATCHES["cnn"])


def language_model() -> TrainingTask:
    tokens = torch.randint(CLASSES, (SAMPLES, 32))
    return TrainingTask(TinyGpt(), tokens, (tokens[:, -1] + tokens[:, 0]) % CLASSES, BATCHES["gpt"])


def _taught(model: nn.Module, inputs: Tensor, batch: int) -> TrainingTask:
    """Classes by a random linear teacher."""
    teacher = torch.randn(inputs[0].numel(), CLASSES)
    return TrainingTask(model, inputs, (inputs.flatten(1) @ teacher).argmax(1), batch)


#: By the names of ``training_jobs.BATCHES``.
MAKERS: Mapping[str, Callable[[], TrainingTask]] = {
    "mlp": perceptron,
    "cnn": convolutions,
    "gpt": language_model,
}


def training_task(name: str, seed: int) -> TrainingTask:
    """Return the model called ``name`` and its data, drawn from ``seed``; the generator goes on from it."""
    torch.manual_seed(seed)
    return MAKERS[name]()


def loss_of(logits: Tensor, targets: Tensor, batch: int) -> Tensor:
    """Return this part's share of the mean loss over the whole ``batch``."""
    return F.cross_entropy(logits, targets, reduction="sum") / batch
