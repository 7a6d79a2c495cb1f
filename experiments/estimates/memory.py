"""Bytes of weights, of what the optimizer keeps, and of activations.

h hidden size, a heads, s sequence length, B batch, t devices of tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.core.errors import BadInput
from experiments.core.precision import FULL, MIXED, MIXED_BOTH_GRADS, MIXED_FP32_GRADS, PURE
from experiments.estimates.estimate import MEGATRON_DOCS, NANOTRON, NOTES, TORCH, ZERO

#: Where the bytes that a precision keeps for a parameter were published.
STATE_SOURCES: Mapping[str, str] = {
    FULL: NOTES,
    PURE: TORCH,
    MIXED: ZERO,
    MIXED_FP32_GRADS: MEGATRON_DOCS,
    MIXED_BOTH_GRADS: NANOTRON,
}


#: How much of a transformer layer runs again in the backward pass.
RECOMPUTATION = ("none", "selective", "full")


def weight_bytes(parameters: int, dtype_bytes: int) -> int:
    """Parameters times 2 or 4 bytes: GPT-3 175B has 350 or 700 GB."""
    return parameters * dtype_bytes


def adam_bytes(parameters: int) -> int:
    """Gradient, first and second moment in 4 bytes each: 12 bytes per parameter, 2,100 GB for GPT-3 175B."""
    return 3 * 4 * parameters


def boundary_activation_bytes(batch: int, sequence: int, hidden: int, dtype_bytes: int) -> int:
    """One layer's output, its inside ignored: B h s times the element."""
    return batch * sequence * hidden * dtype_bytes


def layer_activation_bytes(
    batch: int,
    sequence: int,
    hidden: int,
    heads: int,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> float:
    """What one layer keeps for backward in 16 bits, on each of ``tensor`` devices.

    The attention matrix is stored. Korthikanti et al., MLSys 2023, table 2. ``recompute``: none, s B h (10 +
    24/t + 5 a s / (h t)); selective, without the attention core's 5 a s / (h t); full, 2 s B h.
    ``sequence_parallel`` divides the 10 by t as well: alone s B h (34 + 5 a s / h) / t, with selective 34 s B
    h / t. Kernels that never store the matrix are selective anyway.
    """
    if recompute not in RECOMPUTATION:
        raise BadInput(
            f"recompute = {recompute!r}", "layer_activation_bytes", "one of " + ", ".join(RECOMPUTATION)
        )
    if recompute == "full":
        return 2.0 * sequence * batch * hidden
    outside = 10 / tensor if sequence_parallel else 10
    core = 5 * heads * sequence / (hidden * tensor) if recompute == "none" else 0.0
    return sequence * batch * hidden * (outside + 24 / tensor + core)
