"""Parameters of a GPT from its shape: h hidden size, L layers, V vocabulary, s sequence length."""

from __future__ import annotations


def attention_parameters(hidden: int) -> int:
    """Four h x h projections with biases: 4h^2 + 4h."""
    return 4 * hidden**2 + 4 * hidden


def mlp_parameters(hidden: int) -> int:
    """h -> 4h -> h with biases: 8h^2 + 5h."""
    return 8 * hidden**2 + 5 * hidden


def llm_parameters(hidden: int, layers: int, vocab: int, sequence: int) -> int:
    """Parameters of a GPT with learned positions and a tied output layer.

    A layer norm (2h) stands before each block and at the end. L(12h^2 + 13h) + (V + s)h + 2h; without the
    last term equation 2 of Narayanan et al., SC 2021.
    """
    block = attention_parameters(hidden) + mlp_parameters(hidden) + 2 * 2 * hidden
    return layers * block + (vocab + sequence) * hidden + 2 * hidden
