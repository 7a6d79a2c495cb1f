"""What the library that carries out a plan holds on a device on top of model states and activations.

PyTorch's allocator keeps what it once took, in blocks that never grow together: blocks of activations do not
serve the longer requests of a reduction or an update, which therefore come on top of them; where the device
has no more, it gives free blocks back first (``given_back``).

DeepSpeed's (2022): a gradient is made next to the sum that it is added to. Stages 1 and 2 flatten a bucket to
reduce it, look at each gradient of the own part in float32, and hold that part's gradients in float32 for the
update (runtime/zero/stage_1_and_2.py). Without ZeRO all gradients are copied to float32 one by one, then
flattened (runtime/fp16/fused_optimizer.py). Where 16-bit gradients are added up in float32, each is brought
to float32 for that, and all are brought back to 16 bits to be summed over replicas
(runtime/bf16_optimizer.py, runtime/engine.py: communication_data_type). Stage 3 gathers module by module, and
keeps some parameters for reuse (runtime/zero/partitioned_param_coordinator.py); it collects gradients in a
bucket, those larger than that alone, and flattens what it scatters once more
(runtime/comm/coalesced_collectives.py).
"""

from __future__ import annotations

import numpy as np

from experiments.core.precision import StateBytes
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Who carries a plan out. ``plain`` holds nothing but what the plan says.
PLAIN, DEEPSPEED = ENGINES = ("plain", "deepspeed")
#: Parameters of a bucket of gradients, and of those that stage 3 has gathered (runtime/zero/constants.py).
BUCKET, LIVE = 5e8, 1e9


def engine_bytes(
    states: StateBytes,
    zero: Ints | int,
    parameters: Floats | float,
    largest: Floats | float,
    sharers: Ints | int,
) -> Floats:
    """Return the bytes that DeepSpeed holds on a device of ``parameters``.

    The ``largest`` tensor has so many of them, and ZeRO's stage ``zero`` divides states among ``sharers``
    devices. All of shape (plans,), or numbers.
    """
    bucket = np.minimum(BUCKET, parameters)
    part = parameters / sharers
    both = states.weight * parameters + states.gradient * largest
    flat = states.weight * largest + np.where(sharers > 1, states.weight * bucket, 0.0)
    divided = flat + 4 * np.minimum(largest, part) + 4 * part
    whole = states.weight * largest + 8 * parameters
    gathered = states.weight * (np.minimum(LIVE, parameters) + largest + 2 * bucket + 2 * largest)
    unless_gathered = both if states.bucket else np.where(zero > 0, divided, whole)
    found: Floats = np.where(zero == 3, gathered, unless_gathered)
    return found


def given_back(
    total: Floats | float, capacity: float, buffers: Floats | float, activations: Floats | float
) -> Floats:
    """Return what an allocator that would hold ``total`` bytes gives back on a device of ``capacity``.

    Buffers of the update and activations are not needed at once.
    """
    found: Floats = np.clip(np.asarray(total) - capacity, 0.0, np.minimum(buffers, activations))
    return found
