"""What torchao's ``quantize_`` has a method for, by what is asked of a weight; the rest is refused."""

from __future__ import annotations

from typing import NamedTuple

from experiments.compilation.planning.numerics.quantization import Scheme
from experiments.core.errors import BadInput

#: Weights of a group in its 4-bit kernels.
GROUPS = (32, 64, 128)


class Asked(NamedTuple):
    number: str
    bits: int
    granularity: str
    symmetric: bool
    activations: str


METHODS = {
    Asked("integer", 8, "channel", True, "none"): "int8 weights",
    Asked("integer", 8, "channel", True, "dynamic"): "int8 weights and activations",
    Asked("integer", 4, "group", False, "none"): "int4 weights",
    Asked("float", 8, "tensor", True, "dynamic"): "float8 weights and activations by tensor",
    Asked("float", 8, "channel", True, "dynamic"): "float8 weights and activations by row",
}


def method(number: str, scheme: Scheme, activations: str) -> str:
    """Return the method's name; ``BadInput`` says what there is instead."""
    asked = Asked(number, scheme.bits, scheme.granularity, scheme.symmetric, activations)
    if asked not in METHODS:
        raise BadInput(_scheme_text(asked), "engine torchao", "; ".join(map(_scheme_text, METHODS)))
    if scheme.granularity == "group" and scheme.group not in GROUPS:
        raise BadInput(f"groups of {scheme.group}", "engine torchao", f"one of {GROUPS}")
    return METHODS[asked]


def _scheme_text(asked: Asked) -> str:
    zero = "symmetric" if asked.symmetric else "with zero points"
    return f"{asked.bits}-bit {asked.number} by {asked.granularity}, {zero}, activations {asked.activations}"
