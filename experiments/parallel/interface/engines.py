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

PyTorch's (end of 2024): FSDP2 gathers a unit, a block or all that is in none, into a buffer that lives until
the next is copied out (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py: AllGatherState), in a
stream whose memory no other stream takes. Gradients of a unit are made in 16 bits, and flattened to float32
(_fsdp_collectives.py: foreach_reduce). Stage 3 gathers what is in no block once for both passes
(_fsdp_state.py: _lazy_init). Where weights and sums stay whole because a pipeline adds up (stage 1), the
divided gradients come on top of the sums. torch.distributed.pipelining receives every micro-batch's input and
gradient into a tensor of its own, keeps the gradients of inputs until the next step and outputs until their
backward pass; the last stage keeps all of its outputs and copies them into one
(torch/distributed/pipelining/stage.py, schedules.py).
"""

from __future__ import annotations

import numpy as np

from experiments.core.precision import StateBytes
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Who carries a plan out. ``plain`` holds nothing but what the plan says.
PLAIN, DEEPSPEED, PYTORCH = ENGINES = ("plain", "deepspeed", "pytorch")
#: Parameters of a bucket of gradients, and of those that stage 3 has gathered (runtime/zero/constants.py).
BUCKET, LIVE = 5e8, 1e9


def deepspeed_bytes(
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


def fsdp2_bytes(
    states: StateBytes,
    zero: Ints | int,
    parameters: Floats | float,
    block: Floats | float,
    others: Floats | float,
    largest: Floats | float,
    sharers: Ints | int,
) -> Floats:
    """Return the bytes that FSDP2 holds on a device of ``parameters``; nothing where states are not divided.

    Its largest ``block`` has so many of them, what is in no block ``others``, the largest tensor of these
    ``largest``. ZeRO's stage ``zero`` divides states among ``sharers`` devices. All of shape (plans,), or
    numbers.
    """
    weight = states.weight
    gathered = weight * (others + block + np.where(others < block, block, 0.0))
    made = weight * (block + largest) + 4.0 * block
    whole = np.where(zero == 3, weight * (others + block), 0.0)
    divided = np.where(zero == 1, 4.0 * parameters / sharers, 0.0)
    found: Floats = np.where((zero > 0) & (sharers > 1), gathered + made + whole + divided, 0.0)
    return found


def pipelining_bytes(
    micro_batches: Ints | int, live: Floats | float, received: Floats | float, sent: Floats | float
) -> Floats:
    """Return the bytes that PyTorch holds of what a stage receives and sends, for each of ``micro_batches``.

    ``live`` of them are between their passes; their inputs count as kept by the stage's first operator.
    """
    found = received * (2 * micro_batches - live) + sent * (micro_batches + live)
    return np.asarray(found, np.float64)


def given_back(
    total: Floats | float, capacity: float, buffers: Floats | float, activations: Floats | float
) -> Floats:
    """Return what an allocator that would hold ``total`` bytes gives back on a device of ``capacity``.

    Buffers of the update and activations are not needed at once.
    """
    found: Floats = np.clip(np.asarray(total) - capacity, 0.0, np.minimum(buffers, activations))
    return found
