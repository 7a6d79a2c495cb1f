"""Rules of thumb for a model's size, work and memory, each with its source; shown beside the captured truth.

They are what people compute by hand before they measure. N parameters, h hidden size, L layers, a heads, V
vocabulary, s sequence length, B batch (samples per step), D pipeline stages. Bytes, FLOPs and seconds.

"course notes" below are the machine-learning-systems lecture notes this project started from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments import zero_estimates
from experiments.core.errors import BadInput
from experiments.hardware import collectives
from experiments.hardware.parts import Link

NOTES = "course notes on ML systems"
PALM = "Chowdhery et al., PaLM, 2022, appendix B"
KAPLAN = "Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1"
MEGATRON_2021 = "Narayanan et al., Megatron-LM, SC 2021"
KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation, MLSys 2023"
MEGATRON_DOCS = "Megatron-LM documentation, distributed optimizer (bf16 parameters, fp32 gradients)"
ZERO = "Rajbhandari et al., ZeRO, SC 2020, section 3.1"

# Bytes per parameter that training in mixed precision with Adam keeps, by what is counted.
MIXED_PRECISION: Mapping[str, Mapping[str, int]] = {
    "16 bytes": {
        "fp16 weight": 2,
        "fp16 gradient": 2,
        "fp32 weight": 4,
        "fp32 momentum": 4,
        "fp32 variance": 4,
    },
    "18 bytes": {
        "fp16 weight": 2,
        "fp32 gradient": 4,
        "fp32 weight": 4,
        "fp32 momentum": 4,
        "fp32 variance": 4,
    },
    "20 bytes": {
        "fp16 weight": 2,
        "fp32 weight": 4,
        "fp16 gradient": 2,
        "fp32 gradient": 4,
        "fp32 momentum": 4,
        "fp32 variance": 4,
    },
}
MIXED_PRECISION_SOURCES = {"16 bytes": ZERO, "18 bytes": MEGATRON_DOCS, "20 bytes": NOTES}


#: How much of a transformer layer runs again in the backward pass.
RECOMPUTATION = ("none", "selective", "full")


@dataclass(frozen=True)
class Estimate:
    """One rule applied: ``formula`` in words of this module's symbols, ``value`` in ``unit``."""

    name: str
    value: float
    unit: str
    source: str
    formula: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# --- parameters ---------------------------------------------------------------------------------------------


def attention_parameters(hidden: int) -> int:
    """Four h x h projections with biases: 4h^2 + 4h."""
    return 4 * hidden**2 + 4 * hidden


def mlp_parameters(hidden: int) -> int:
    """h -> 4h -> h with biases: 8h^2 + 5h."""
    return 8 * hidden**2 + 5 * hidden


def llm_parameters(hidden: int, layers: int, vocab: int, sequence: int) -> int:
    """A GPT with learned positions, a tied output layer and a layer norm (2h) before each block and at the end.

    L(12h^2 + 13h) + (V + s)h + 2h; without the last term equation 2 of Narayanan et al., SC 2021.
    """
    block = attention_parameters(hidden) + mlp_parameters(hidden) + 2 * 2 * hidden
    return layers * block + (vocab + sequence) * hidden + 2 * hidden


# --- memory -------------------------------------------------------------------------------------------------


def weight_bytes(parameters: int, dtype_bytes: int) -> int:
    """Parameters times 2 or 4 bytes: GPT-3 175B has 350 or 700 GB."""
    return parameters * dtype_bytes


def adam_bytes(parameters: int) -> int:
    """Gradient, first and second moment in 4 bytes each: 12 bytes per parameter, 2,100 GB for GPT-3 175B."""
    return 3 * 4 * parameters


def mixed_precision_bytes(parameters: int, counted: str) -> int:
    """16, 18 or 20 bytes per parameter, by what is counted (see ``MIXED_PRECISION``)."""
    return parameters * sum(MIXED_PRECISION[counted].values())


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
    """What one layer keeps for backward in 16 bits, on each of ``tensor`` devices; the attention matrix is stored.

    Korthikanti et al., MLSys 2023, table 2. ``recompute``: none, s B h (10 + 24/t + 5 a s / (h t)); selective, without
    the attention core's 5 a s / (h t); full, 2 s B h. ``sequence_parallel`` divides the 10 by t as well: alone
    s B h (34 + 5 a s / h) / t, with selective 34 s B h / t. Kernels that never store the matrix are selective anyway.
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


# --- work ---------------------------------------------------------------------------------------------------


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


def hfu_with_full_recomputation(mfu: float) -> float:
    """One more forward pass (4 instead of 3 forward-equivalents): HFU = 4/3 MFU."""
    return 4 / 3 * mfu


def matmul_intensity(m: int, n: int, k: int, dtype_bytes: int) -> float:
    """FLOP/byte of (m, k) x (k, n) with every operand moved once: 2mnk / ((mk + kn + mn) bytes)."""
    return 2 * m * n * k / (dtype_bytes * (m * k + k * n + m * n))


def elementwise_intensity(operations: int, operands: int, dtype_bytes: int) -> float:
    """FLOP/byte of an element-wise op that reads and writes ``operands`` tensors: c = a + b gives 1/3 per element."""
    return operations / (operands * dtype_bytes)


# --- traffic of an n x n matrix product, in elements, by tiling level ----------------------------------------


def untiled_reads(n: int) -> int:
    """Each of the n^2 results reads a row and a column: 2 n^3."""
    return 2 * n**3


def cache_tiled_reads(n: int, b1: int) -> float:
    """DRAM to cache with row panels of b1: A once, B once per panel: n^2 + n^3/b1."""
    return n**2 + n**3 / b1


def cache_tile_elements(n: int, b1: int, b2: int) -> int:
    """What the two panels occupy: (b1 + b2) n elements must fit in the cache."""
    return (b1 + b2) * n


def register_tiled_reads(n: int, v1: int, v2: int) -> float:
    """Cache to registers with v1 x v2 results at once: n^3/v2 for A and n^3/v1 for B."""
    return n**3 / v2 + n**3 / v1


def register_tile_elements(v1: int, v2: int, v3: int) -> int:
    """Registers for the slices and the results: v1 v3 + v2 v3 + v1 v2."""
    return v1 * v3 + v2 * v3 + v1 * v2


def shared_memory_tiled_reads(n: int, block: int) -> float:
    """Global memory of a GPU with block x block results per thread block: 2 n^3 / block."""
    return 2 * n**3 / block


# --- parallel -----------------------------------------------------------------------------------------------


def pipeline_bubble(stages: int, microbatches: int) -> float:
    """Idle share of a synchronous pipeline: (D-1) / (D-1+m)."""
    return (stages - 1) / (stages - 1 + microbatches)


def estimate_all_reduce(size: float, link: Link, ranks: int) -> tuple[Estimate, ...]:
    """Seconds to all-reduce ``size`` bytes by minimum spanning tree and by ring, and where they cross."""
    source = "Chan et al., Collective communication, CCPE 2007"
    tree = collectives.tree_all_reduce(link, ranks, size)
    ring = collectives.ring_all_reduce(link, ranks, size)
    crossing = collectives.ring_beats_tree_from(link, ranks)
    return (
        Estimate("all-reduce by tree", tree, "s", source, "2 ceil(log2 n) (alpha + bytes beta)"),
        Estimate("all-reduce by ring", ring, "s", source, "2(n-1) alpha + 2(n-1)/n bytes beta"),
        Estimate(
            "ring pays from",
            crossing,
            "bytes",
            source,
            "alpha (n-1-L) / (beta (L-(n-1)/n)), L = ceil(log2 n)",
        ),
    )


# --- the two tables of the artifact card ----------------------------------------------------------------------


def estimate_model(parameters: int, tokens: int | None = None) -> tuple[Estimate, ...]:
    """What the parameter count alone says; with ``tokens`` per step also its FLOPs (matrix products only)."""
    rows = [
        Estimate("weights in 2 bytes", weight_bytes(parameters, 2), "bytes", NOTES, "2 N"),
        Estimate("weights in 4 bytes", weight_bytes(parameters, 4), "bytes", NOTES, "4 N"),
        Estimate("gradients and Adam moments", adam_bytes(parameters), "bytes", NOTES, "12 N"),
    ]
    for counted, parts in MIXED_PRECISION.items():
        size, source = mixed_precision_bytes(parameters, counted), MIXED_PRECISION_SOURCES[counted]
        rows.append(
            Estimate(f"mixed precision, {counted}", size, "bytes", source, f"N x ({' + '.join(parts)})")
        )
    if tokens is not None:
        rows.append(
            Estimate("forward pass", inference_flops(parameters, tokens), "FLOP", KAPLAN, "2 N tokens")
        )
        rows.append(
            Estimate("training step", training_flops(parameters, tokens), "FLOP", KAPLAN, "6 N tokens")
        )
    return tuple(rows)


def estimate_llm(
    hidden: int, layers: int, heads: int, vocab: int, sequence: int, batch: int, dtype_bytes: int
) -> tuple[Estimate, ...]:
    """Every rule for a GPT-like model and one training step of ``batch`` sequences of ``sequence`` tokens."""
    parameters, tokens = llm_parameters(hidden, layers, vocab, sequence), batch * sequence
    attention = attention_training_flops(layers, hidden, sequence, tokens)
    boundary = boundary_activation_bytes(batch, sequence, hidden, dtype_bytes)
    inside = layers * layer_activation_bytes(batch, sequence, hidden, heads)
    step = training_flops(parameters, tokens) + attention
    return (
        Estimate(
            "attention parameters per layer", attention_parameters(hidden), "parameters", NOTES, "4h^2 + 4h"
        ),
        Estimate("MLP parameters per layer", mlp_parameters(hidden), "parameters", NOTES, "8h^2 + 5h"),
        Estimate("parameters", parameters, "parameters", MEGATRON_2021, "L(12h^2 + 13h) + (V + s)h + 2h"),
        *estimate_model(parameters, tokens),
        Estimate("attention in a training step", attention, "FLOP", PALM, "12 L h s tokens"),
        Estimate("training step with attention", step, "FLOP", PALM, "(6 N + 12 L h s) tokens"),
        Estimate("recomputed training step", 4 * step / 3, "FLOP", NOTES, "4/3 (6 N + 12 L h s) tokens"),
        Estimate("activations at layer boundaries", layers * boundary, "bytes", NOTES, "L B h s x element"),
        Estimate(
            "activations of all layers, 16 bit", inside, "bytes", KORTHIKANTI, "L s B h (34 + 5 a s / h)"
        ),
    )


#: Rules that a paper's claim can name.
CLOSED_FORMS: Mapping[str, Callable[..., float]] = {
    "layer_activation_bytes": layer_activation_bytes,
    "deepspeed_device_bytes": zero_estimates.deepspeed_device_bytes,
    "infinity_efficiency": zero_estimates.infinity_efficiency,
}
