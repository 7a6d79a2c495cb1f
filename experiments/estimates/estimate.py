"""One rule of thumb applied, and the sources that the rules come from.

"course notes" are the machine-learning-systems lecture notes this project started from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NOTES = "course notes on ML systems"
TORCH = "torch.optim, whose state has the type of the parameter"


PALM = "Chowdhery et al., PaLM, 2022, appendix B"


KAPLAN = "Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1"


MEGATRON_2021 = "Narayanan et al., Megatron-LM, SC 2021"


KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation, MLSys 2023"


MEGATRON_DOCS = "Megatron-LM documentation, distributed optimizer (bf16 parameters, fp32 gradients)"
NANOTRON = "nanotron, gradient accumulators (bf16 buckets of gradients, fp32 sums)"


ZERO = "Rajbhandari et al., ZeRO, SC 2020, section 3.1"


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
