"""How many of a tensor's values are not zero, and what zero-value compression makes of it.

Densities are measured (``Tensors.sparsity``, from a profile) or assumed: rectifiers zero half of their
output, what pools and drops those values keeps their density, everything else is dense.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.memory.interface.activations import last_forward_op
from experiments.workloads.step import Floats, Step

#: Density of a rectifier's output where nobody measured it (cDMA: networks before training; it falls while
#: training).
ASSUMED = 0.5
#: Ops that zero what is negative, and ops that hand on the zeros of their input.
RECTIFIERS = ("relu", "threshold")
KEEP_ZEROS = ("dropout", "max_pool")


def densities(step: Step, assumed: float = ASSUMED) -> Floats:
    """The share of values that are not zero, by tensor, in [0, 1]."""
    found = np.ones(len(step.tensors))
    for op in range(last_forward_op(step) + 1):
        target = step.ops.target[op].lower()
        written = [t for t in step.outputs[op].tolist() if not step.persistent[t]]
        if any(part in target for part in RECTIFIERS) and "gelu" not in target:
            found[written] = assumed
        elif any(part in target for part in KEEP_ZEROS):
            found[written] = min([found[t] for t in step.inputs[op].tolist()], default=1.0)
    known = ~np.isnan(step.tensors.sparsity)
    found[known] = 1 - step.tensors.sparsity[known]
    return found


def zero_value_ratio(density: float, word_bytes: int = 4) -> float:
    """Return bytes before over bytes after leaving out zeros; never below 1.

    A mask bit for each word, and the words that are not zero.

    cDMA (HPCA 2018): 32 words of 4 bytes share a mask of 32 bits, so the ratio is 1 / (density + 1/32).
    """
    return max(1.0, 1.0 / (density + 1.0 / (8 * word_bytes)))


def word_bytes(dtype: str) -> int:
    return {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}.get(dtype, 4)


def ratios(step: Step, tensors: Sequence[int], assumed: float = ASSUMED) -> dict[int, float]:
    """The zero-value ratio of each of ``tensors``."""
    density = densities(step, assumed)
    return {t: zero_value_ratio(float(density[t]), word_bytes(step.tensors.dtype[t])) for t in tensors}
