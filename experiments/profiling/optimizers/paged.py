"""AdamW whose moments belong to the host (Dettmers et al., "QLoRA", NeurIPS 2023, section 3).

bitsandbytes keeps the moments in memory that host and device share; its kernel updates a parameter and both
moments in one pass, and their pages cross the link for it. Moments are float32 or 8 bits whatever the weights
are. A tensor of fewer than 100,000 values keeps its moments on the device, in float32 or codes all the same.
Where the pages are is the affair of the memory family (``memory/interface/pages``); bitsandbytes itself gives
the sizes only.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from experiments.profiling.optimizers import elementwise, quantized
from experiments.profiling.optimizers.optimizer import Optimizer, State

#: Values of the smallest tensor whose moments have pages.
FEWEST = 100_000
_DEVICE_ADAMW = elementwise.adam("adamw", quantized.RATE, quantized.DECAY)


def adamw(name: str) -> Optimizer:
    """AdamW with float32 moments on the host."""

    def initial(parameter: Tensor, hidden: bool) -> dict[str, Tensor]:
        return {slot: torch.zeros_like(parameter, dtype=torch.float32) for slot in ("mean", "square")}

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        scalars = (prepared["rate"], prepared["root"])
        update_moments_(parameter, gradient, slots["mean"], slots["square"], *scalars)

    return replace(_DEVICE_ADAMW, name=name, initial=initial, update=update, together={}, paged_from=FEWEST)


def adamw8bit(name: str) -> Optimizer:
    """AdamW with moments of 8 bits on the host."""
    return replace(quantized.adamw(name, 8, in_place=True), paged_from=FEWEST)


@torch.library.custom_op(
    "lab::adamw_moments_",
    mutates_args=("parameter", "mean", "square"),
    schema="(Tensor(a!) parameter, Tensor gradient, Tensor(b!) mean, Tensor(c!) square, "
    "Tensor rate, Tensor root) -> ()",
)
def update_moments_(
    parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, rate: Tensor, root: Tensor
) -> None:
    """Update the parameter and both moments in one pass, in float32."""
    wide = parameter.float()
    moments = {"mean": mean, "square": square}
    _DEVICE_ADAMW.update(wide, gradient.float(), moments, {"rate": rate, "root": root})
    if wide is not parameter:
        parameter.copy_(wide)


@update_moments_.register_fake
def _(*arguments: object) -> None: ...
