"""How far rounding may carry a result.

What an approximate rewrite promises, as error over result, both in norm.

A rough model, stated so that it can be checked: one product's result is off by the noise of its operands, and
noises of products in a row add as independent errors do, by their squares. ``SAFETY`` covers what the model
leaves out (correlated errors, gains above one). A wrong scale or zero point is off by more.
"""

from __future__ import annotations

import math

SAFETY = 4.0
#: Largest over root-mean-square of values that are spread like a bell.
CREST = 4.0
#: Half of the distance between 1 and the next number.
ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float8_e4m3fn": 2.0**-4}


def rounded_activations(number: str, products: int) -> float:
    """Of ``products`` in a row whose inputs are rounded to 8 bits.

    Whole numbers: a step of CREST / 127 of the root-mean-square is an error of step / sqrt(12). Floats of 3
    bits of mantissa are at most 2^-4 of themselves off, both operands of a product.
    """
    noise = CREST / 127 / math.sqrt(12) if number == "integer" else ROUNDOFF["float8_e4m3fn"]
    return SAFETY * noise * math.sqrt(max(products, 1))


def half_precision(dtype: str, ops: int) -> float:
    """Of ``ops`` in a row that round to ``dtype``."""
    return SAFETY * ROUNDOFF[dtype] * math.sqrt(max(ops, 1))
