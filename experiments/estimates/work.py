"""FLOPs of a pass, their share of a device's peak, and FLOPs for each byte moved."""

from __future__ import annotations


def training_flops(parameters: int, tokens: int) -> int:
    """6 FLOPs per parameter and token (2 forward, 4 backward), attention apart."""
    return 6 * parameters * tokens


def inference_flops(parameters: int, tokens: int) -> int:
    """2 FLOPs per parameter and token, attention apart."""
    return 2 * parameters * tokens


def attention_training_flops(layers: int, hidden: int, sequence: int, tokens: int) -> int:
    """FLOPs of the products of queries, keys and values, forward and backward: 12 L h s per token.

    Causal masks save nothing.
    """
    return 12 * layers * hidden * sequence * tokens


def mfu(flops: float, seconds: float, peak_flops: float) -> float:
    """Model FLOPs utilization: FLOPs the model asks for / (time x peak)."""
    return flops / (seconds * peak_flops)


def hfu_with_full_recomputation(mfu: float) -> float:
    """One more forward pass (4 instead of 3 forward-equivalents): HFU = 4/3 MFU."""
    return 4 / 3 * mfu


def matmul_intensity(m: int, n: int, k: int, dtype_bytes: int) -> float:
    """FLOP/byte of (m, k) x (k, n) with every operand moved once: 2mnk / ((mk + kn + mn) bytes)."""
    return 2 * m * n * k / (dtype_bytes * (m * k + k * n + m * n))


def elementwise_intensity(operations: int, operands: int, dtype_bytes: int) -> float:
    """FLOP/byte of an element-wise op that reads and writes ``operands`` tensors.

    c = a + b gives 1/3 per element.
    """
    return operations / (operands * dtype_bytes)
