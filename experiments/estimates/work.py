"""FLOPs of a pass, and their share of a device's peak."""

from __future__ import annotations


def training_flops(parameters: int, tokens: int) -> int:
    """6 FLOPs per parameter and token (2 forward, 4 backward), attention apart."""
    return 6 * parameters * tokens


def inference_flops(parameters: int, tokens: int) -> int:
    """2 FLOPs per parameter and token, attention apart."""
    return 2 * parameters * tokens


def attention_training_flops(layers: int, hidden: int, sequence: int, tokens: int) -> int:
    """The products of queries, keys and values: 12 L h s per token, forward and backward, no causal saving."""
    return 12 * layers * hidden * sequence * tokens


def mfu(flops: float, seconds: float, peak_flops: float) -> float:
    """Model FLOPs utilisation: FLOPs the model asks for / (time x peak)."""
    return flops / (seconds * peak_flops)
