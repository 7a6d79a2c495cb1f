"""Generation one request after another, without batches, blocks or a cache: what every policy must give."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from experiments.serving.live.model import PagedGpt


@torch.inference_mode()
def generate_alone(model: PagedGpt, prompt: Sequence[int], count: int) -> list[int]:
    """Return ``count`` greedy tokens behind ``prompt``, each from a whole pass over all tokens before it."""
    ids = list(prompt)
    for _ in range(count):
        logits = model.body(torch.tensor([ids], device=model.device))
        ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt) :]
