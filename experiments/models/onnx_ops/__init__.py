"""ONNX operators as functions of torch tensors, so that autograd gives an ONNX graph its true backward pass.

``OPERATORS[name]`` holds each. Older forms of an operator (an attribute that became an argument) are read
too.
"""

from __future__ import annotations

from experiments.models.onnx_ops import attention, elementwise, indexing, layout, neural, pooling, reductions
from experiments.models.onnx_ops.table import OPERATORS, How, Operator

__all__ = [
    "OPERATORS",
    "How",
    "Operator",
    "attention",
    "elementwise",
    "indexing",
    "layout",
    "neural",
    "pooling",
    "reductions",
]
