"""What a phase costs in a layout: arithmetic or memory, whichever is longer, and what is sent besides.

MFU counts 2 P FLOPs for a token and leaves out attention's. Matrices of int8 weights multiply in bfloat16, so
int8 halves the bytes of weights, not the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.units import DTYPE_BYTES
from experiments.hardware.roofline import compute_rate, memory_rate
from experiments.serving.interface.partitioning.layouts import (
    Layout,
    activation_elements,
    attention_elements,
    kv_bytes_per_context_token,
    weight_elements,
)
from experiments.serving.interface.partitioning.site import DividedModel, Phase

ACTIVATION = "bfloat16"


@dataclass(frozen=True)
class PhaseCost:
    """Seconds of a whole phase and of its three parts; ``weights`` and ``kv`` are bytes of a chip."""

    seconds: float
    compute: float
    memory: float
    communication: float
    weights: float
    kv: float
    mfu: float
    mbu: float


def phase_cost(
    model: DividedModel,
    layout: Layout,
    attention: str,
    phase: Phase,
    *,
    weight_type: str,
    overlap: float,
    overhead: float,
) -> PhaseCost:
    """Return what ``phase`` takes; ``overlap`` of what is sent is hidden, ``overhead`` s go to each layer."""
    device, chips = layout.torus.device, layout.torus.chips
    element, weight = DTYPE_BYTES[ACTIVATION], DTYPE_BYTES[weight_type]
    tokens = phase.tokens_per_pass
    kv_token = kv_bytes_per_context_token(model, attention, phase.batch, chips, element)
    pairs = tokens * phase.mean_context
    flops = 2 * model.parameters * tokens + 4 * model.layers * model.heads * model.head_dim * pairs
    weights = model.parameters * weight / chips
    compute = flops / chips / compute_rate(device, ACTIVATION)
    memory = (weights + kv_token * phase.mean_context) / memory_rate(device)
    sent = element * (
        activation_elements(layout, model.hidden, model.inner, tokens)
        + attention_elements(model, attention, phase, chips)
    )
    sent += weight * weight_elements(layout, model.layer_weights)
    communication = model.layers * sent / device.peer_link.bandwidth
    once = max(compute, memory) + (1 - overlap) * communication + model.layers * overhead
    seconds = phase.passes * once
    return PhaseCost(
        seconds,
        phase.passes * compute,
        phase.passes * memory,
        phase.passes * communication,
        weights,
        kv_token * phase.longest,
        2 * model.parameters * tokens / (chips * device.peak(ACTIVATION) * once),
        (weights + kv_token * phase.mean_context) / (device.memory_bandwidth * once),
    )
