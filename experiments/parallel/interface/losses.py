"""What a loss needs beyond what it keeps."""

from __future__ import annotations

from experiments.workloads.layers import LayerGraph

LOSS = "loss"


def loss_scratch(model: LayerGraph, weight: float) -> float:
    """Return the bytes that a fused loss takes to add up the gradient of its weights of ``weight`` bytes.

    Part by part in its forward pass, whatever the number of samples: the product of a part, and the same in
    float32 (Liger 0.8, ops/fused_linear_cross_entropy.py). The sum itself is the gradient, which counts
    elsewhere. Nothing for other losses.
    """
    sizes = model.transformer
    if sizes is None or model.facts.get("keeps_logits", True):
        return 0.0
    return (weight + 4.0) * sizes.vocabulary * sizes.hidden
