"""What a phase costs in a layout: arithmetic or memory, whichever is longer, and what is sent besides.

Products, attention and streams from memory reach the shares of the peaks that kernels usually do
(``KernelRates``). A product of fewer rows than the side of a systolic array takes as long as one of that
many, since each block of weights is shifted in meanwhile. MFU counts 2 P FLOPs for a token and leaves out
attention's. Matrices of int8 weights multiply in bfloat16, so int8 halves the bytes of weights, not the
arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.units import DTYPE_BYTES
from experiments.hardware.roofline import compute_rate, memory_rate
from experiments.serving.interface.partitioning.collectives import layer_collectives
from experiments.serving.interface.partitioning.layouts import (
    Layout,
    activation_elements,
    attention_elements,
    kv_bytes_per_context_token,
    weight_elements,
)
from experiments.serving.interface.partitioning.site import DividedModel, Phase

ACTIVATION = "bfloat16"
#: Side of TPU v4's matrix units (Jouppi et al., ISCA'23); tiles of GPUs have as many rows.
ARRAY_ROWS = 128


@dataclass(frozen=True)
class PhaseCost:
    """Seconds of a whole phase and of its three parts; ``weights`` and ``kv`` are bytes of a chip.

    ``by_volume`` are the seconds of the phase where collectives are priced as the paper chooses layouts: by
    volume, with all links of a chip for each.
    """

    seconds: float
    by_volume: float
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
    weights = model.parameters * weight / chips
    compute = _compute_time(model, layout, phase)
    rate = memory_rate(device) * device.kernels.stream_efficiency
    memory = (weights + kv_token * phase.mean_context) / rate
    sent = list(layer_collectives(model, layout, attention, phase, element, weight))
    transfers = model.layers * sum(one.transfer_time(device.peer_link.bandwidth) for one in sent)
    hops = model.layers * sum(one.hops for one in sent) * device.peer_link.latency
    volume = model.layers * _layer_volume(model, layout, attention, phase, weight)
    communication = transfers + hops
    busy = max(compute, memory) + model.layers * overhead
    once = busy + (1 - overlap) * transfers + hops
    return PhaseCost(
        phase.passes * once,
        phase.passes * (busy + (1 - overlap) * volume / device.peer_link.bandwidth),
        phase.passes * compute,
        phase.passes * memory,
        phase.passes * communication,
        weights,
        kv_token * phase.longest,
        2 * model.parameters * tokens / (chips * device.peak(ACTIVATION) * once),
        (weights + kv_token * phase.mean_context) / (device.memory_bandwidth * once),
    )


def _layer_volume(model: DividedModel, layout: Layout, attention: str, phase: Phase, weight: int) -> float:
    """Bytes that a chip moves for a layer whose feed-forward part has two matrices (section 3.2)."""
    tokens = phase.tokens_per_pass
    activations = activation_elements(layout, model.hidden, model.inner, tokens)
    activations += attention_elements(model, attention, phase, layout.torus.chips)
    weights = weight_elements(layout, model.layer_weights)
    return DTYPE_BYTES[ACTIVATION] * activations + weight * weights


def _compute_time(model: DividedModel, layout: Layout, phase: Phase) -> float:
    """Seconds of a pass' arithmetic on a chip; gathered weights meet a share of the rows."""
    device, tokens = layout.torus.device, phase.tokens_per_pass
    rate = compute_rate(device, ACTIVATION) * layout.torus.chips
    short = max(1.0, ARRAY_ROWS * layout.gathered / tokens)
    products = 2 * model.parameters * tokens * short / device.kernels.product_efficiency
    pairs = tokens * phase.mean_context
    scores = 4 * model.layers * model.heads * model.head_dim * pairs / device.kernels.attention_efficiency
    return (products + scores) / rate
