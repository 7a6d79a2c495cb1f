"""The two tables of rules of thumb that stand next to what was captured of a model."""

from __future__ import annotations

from experiments.core.precision import FULL, state_bytes
from experiments.estimates.estimate import KAPLAN, KORTHIKANTI, MEGATRON_2021, NOTES, PALM, Estimate
from experiments.estimates.memory import (
    STATE_SOURCES,
    adam_bytes,
    boundary_activation_bytes,
    layer_activation_bytes,
    weight_bytes,
)
from experiments.estimates.parameters import attention_parameters, llm_parameters, mlp_parameters
from experiments.estimates.work import attention_training_flops, inference_flops, training_flops


def estimate_model(parameters: int, tokens: int | None = None) -> tuple[Estimate, ...]:
    """What the parameter count alone says; with ``tokens`` per step also its FLOPs (matrix products only)."""
    rows = [
        Estimate("weights in 2 bytes", weight_bytes(parameters, 2), "bytes", NOTES, "2 N"),
        Estimate("weights in 4 bytes", weight_bytes(parameters, 4), "bytes", NOTES, "4 N"),
        Estimate("gradients and Adam moments", adam_bytes(parameters), "bytes", NOTES, "12 N"),
    ]
    rows += [_training_state(parameters, precision) for precision in STATE_SOURCES]
    if tokens is not None:
        rows.append(
            Estimate("forward pass", inference_flops(parameters, tokens), "FLOP", KAPLAN, "2 N tokens")
        )
        rows.append(
            Estimate("training step", training_flops(parameters, tokens), "FLOP", KAPLAN, "6 N tokens")
        )
    return tuple(rows)


def _training_state(parameters: int, precision: str) -> Estimate:
    """What a step with AdamW keeps, as every family counts it."""
    states = state_bytes("float32" if precision == FULL else "bfloat16", "adamw", precision)
    parts = " + ".join(f"{size:g} {part}" for part, size in states.parts.items())
    name, size = f"training state, {precision}", parameters * states.total
    return Estimate(name, size, "bytes", STATE_SOURCES[precision], f"N x ({parts})")


def estimate_llm(
    hidden: int,
    layers: int,
    heads: int,
    vocab: int,
    sequence: int,
    batch: int,
    dtype_bytes: int,
    counted: int | None = None,
) -> tuple[Estimate, ...]:
    """Every rule for a GPT-like model and one training step of ``batch`` sequences of ``sequence`` tokens.

    Where the parameters are ``counted``, rules start from them, and those that count a GPT's are left out.
    """
    parameters, tokens = counted or llm_parameters(hidden, layers, vocab, sequence), batch * sequence
    attention = attention_training_flops(layers, hidden, sequence, tokens)
    boundary = boundary_activation_bytes(batch, sequence, hidden, dtype_bytes)
    inside = layers * layer_activation_bytes(batch, sequence, hidden, heads)
    step = training_flops(parameters, tokens) + attention
    return (
        *(() if counted else _gpt_parameters(hidden, parameters)),
        *estimate_model(parameters, tokens),
        Estimate("attention in a training step", attention, "FLOP", PALM, "12 L h s tokens"),
        Estimate("training step with attention", step, "FLOP", PALM, "(6 N + 12 L h s) tokens"),
        Estimate("recomputed training step", 4 * step / 3, "FLOP", NOTES, "4/3 (6 N + 12 L h s) tokens"),
        Estimate("activations at layer boundaries", layers * boundary, "bytes", NOTES, "L B h s x element"),
        Estimate(
            "activations of all layers, 16 bit", inside, "bytes", KORTHIKANTI, "L s B h (34 + 5 a s / h)"
        ),
    )


def _gpt_parameters(hidden: int, parameters: int) -> tuple[Estimate, ...]:
    attention, mlp = attention_parameters(hidden), mlp_parameters(hidden)
    return (
        Estimate("attention parameters per layer", attention, "parameters", NOTES, "4h^2 + 4h"),
        Estimate("MLP parameters per layer", mlp, "parameters", NOTES, "8h^2 + 5h"),
        Estimate("parameters", parameters, "parameters", MEGATRON_2021, "L(12h^2 + 13h) + (V + s)h + 2h"),
    )
