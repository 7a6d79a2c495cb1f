"""Model states: weights, gradients and optimizer state, and what ZeRO leaves of them on each device.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20,
sections 3.1 (16 bytes per parameter with mixed-precision Adam), 5.1-5.3 and figure 1 (bytes by stage).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.units import DTYPE_BYTES

#: float32 copies that an optimizer keeps for each parameter.
OPTIMIZER_MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
ZERO_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class StateBytes:
    """Bytes for one parameter: its weight, its gradient and all that the optimizer keeps.

    The optimizer's are K in the paper.
    """

    weight: float
    gradient: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.weight + self.gradient + self.optimizer

    def on_device(self, parameters: float, zero: int, degree: int) -> float:
        """Return the bytes of model states on each of ``degree`` devices: figure 1 of the paper.

        Stage 1 divides the optimizer state, stage 2 the gradients too, stage 3 the weights too.
        """
        weight = self.weight / (degree if zero >= 3 else 1)
        gradient = self.gradient / (degree if zero >= 2 else 1)
        optimizer = self.optimizer / (degree if zero >= 1 else 1)
        return parameters * (weight + gradient + optimizer)


def state_bytes(dtype: str, optimizer: str) -> StateBytes:
    """Return the bytes of a parameter's states.

    16-bit types mean mixed precision: the optimizer keeps a float32 master copy as well.

    ``("float16", "adam")`` gives 2 + 2 + 12 bytes, ``("float32", "adam")`` 4 + 4 + 8.
    """
    size = DTYPE_BYTES[dtype]
    moment = max(size, 4)
    master = 4 if size < 4 else 0
    return StateBytes(size, size, master + moment * OPTIMIZER_MOMENTS[optimizer])
