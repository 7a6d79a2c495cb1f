"""Rules of thumb for a model's size, work and memory, each with its source; shown next to the captured truth.

They are what people compute by hand before they measure. Bytes, FLOPs and seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.estimates.estimate import Estimate
from experiments.estimates.memory import layer_activation_bytes
from experiments.estimates.tables import estimate_llm, estimate_model
from experiments.estimates.zero import deepspeed_device_bytes, infinity_efficiency

#: Rules that a paper's claim can name.
CLOSED_FORMS: Mapping[str, Callable[..., float]] = {
    "layer_activation_bytes": layer_activation_bytes,
    "deepspeed_device_bytes": deepspeed_device_bytes,
    "infinity_efficiency": infinity_efficiency,
}

__all__ = ["CLOSED_FORMS", "Estimate", "estimate_llm", "estimate_model"]
