"""Adapters: a small trained part beside linear layers of a model that is frozen otherwise.

``lora`` is LoRA (Hu et al., ICLR'22, section 4.1), ``dora`` is DoRA (Liu et al., ICML'24, section 4), with
the operations and first values of ``peft``: the scale is 8 / rank, A is random, B is zero. Two things are not
as there: dropout keeps a mask of one byte for each value on a CPU too, as on a GPU, and DoRA multiplies B by
A, not both by a unit matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.options import FineTuning
from experiments.models.dropout import Dropout
from experiments.models.quantized import QuantizedLinear

#: ``lora_alpha`` of ``peft`` unless it is told.
ALPHA = 8


@dataclass(frozen=True)
class Matrix:
    """Sides of a linear layer's weight, and the dimension of its outputs.

    It is 1 where the weight multiplies from the right.
    """

    inputs: int
    outputs: int
    output_dimension: int


def matrix_of(module: Any) -> Matrix | None:
    """Return the weight's sides of a linear layer, torch's or the one of ``transformers``' GPT-2."""
    if isinstance(module, nn.Linear):
        return Matrix(module.in_features, module.out_features, 0)
    if type(module).__name__ == "Conv1D" and hasattr(module, "nx"):
        return Matrix(module.nx, module.nf, 1)
    return None


class Lora(nn.Module):
    """``base_layer(x) + B(A(dropout(x))) scale``."""

    def __init__(self, base: nn.Module, matrix: Matrix, options: FineTuning) -> None:
        super().__init__()
        rank = options.adapter_rank
        self.base_layer, self.matrix = base, matrix
        self.dropout, self.scale = Dropout(options.adapter_dropout), ALPHA / rank
        self.lora_A = nn.Parameter(torch.empty(rank, matrix.inputs))
        self.lora_B = nn.Parameter(torch.zeros(matrix.outputs, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self._dtype = options.adapter_dtype

    @property
    def own_dtypes(self) -> dict[str, torch.dtype]:
        """Types that the step's own does not replace."""
        names = ("lora_A", "lora_B", "magnitude") if self._dtype else ()
        return {name: getattr(torch, str(self._dtype)) for name in names}

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x)
        return (out + self._product(self.dropout(x.to(self.lora_A.dtype))) * self.scale).to(out.dtype)

    def _product(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.lora_A), self.lora_B)


class Dora(Lora):
    """``base_layer(x)`` with its weight's norm as a trained magnitude; the norm itself has no gradient."""

    def __init__(self, base: nn.Module, matrix: Matrix, options: FineTuning) -> None:
        super().__init__(base, matrix, options)
        self.magnitude = nn.Parameter(self._norm(torch.float32))

    @torch.no_grad()
    def _norm(self, dtype: torch.dtype) -> Tensor:
        change = self.lora_B @ self.lora_A
        norm: Tensor = torch.linalg.vector_norm(self._base_weight(dtype) + self.scale * change, dim=1)
        return norm

    def _base_weight(self, dtype: torch.dtype) -> Tensor:
        """Return the base's weight, outputs first."""
        base: Any = self.base_layer
        stored = isinstance(base, QuantizedLinear)
        weight: Tensor = base.dequantize(dtype) if stored else base.weight.to(dtype)
        return weight if self.matrix.output_dimension == 0 else weight.t()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x)
        dropped = self.dropout(x.to(self.lora_A.dtype))
        product = self._product(dropped)
        ratio = self.magnitude / self._norm(dropped.dtype)
        return (out + (ratio - 1) * self._plain(out, dropped) + ratio * product * self.scale).to(out.dtype)

    def _plain(self, out: Tensor, dropped: Tensor) -> Tensor:
        """Return the base's product alone: of what dropout left, where there is any."""
        if not self.dropout.acts:
            bias: Tensor | None = getattr(self.base_layer, "bias", None)
            return out if bias is None else out - bias
        if isinstance(self.base_layer, QuantizedLinear):
            return self.base_layer.product(dropped)
        return F.linear(dropped, self._base_weight(dropped.dtype))


ADAPTERS: dict[str, type[Lora]] = {"lora": Lora, "dora": Dora}
