"""ZeRO-Offload (Ren et al., ATC 2021): the optimizer's state and step on the host, the passes on the device.

The fixed cut: parameters are on the device for both passes, their gradients leave as the backward pass makes
them, and the host holds the optimizer's state and the parameters' own copy, which it updates and sends back
before the next step begins (it updates nothing during the passes); a parameter's way back begins when its
update has ended, while the next one is updated. The update takes the time of the authors' CPU Adam by default
(0.257 ns a parameter), or what its bytes take at the host's bandwidth. The paper trains in mixed precision
with a 32-bit copy of 16-bit parameters; a step has one copy in its own type, so its bytes differ (the
paper's, table 1: 2 bytes a parameter on the device, 14 on the host, 2 each way). One-step delayed update
(section 5.2, ``delayed``) lets the host update during the next step's passes, which use the
parameters of the update before: it changes what is computed, so it is off by default and cannot be measured.
The first steps, which the paper updates without delay (40 of them), are left out. A step then takes the
longest of the passes, of the update and of the copies one way, as every plan notes. Left open by the paper:
whether to offload when all fits; by default nothing moves then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.hardware.host_adam import FUSED_ADAM, TORCH_ADAM
from experiments.memory.interface import (
    DeviceView,
    MemoryMove,
    MemoryPlan,
    PlaceTensor,
    Prefetch,
    Recompute,
)
from experiments.memory.planning.borders import keep_every_kth
from experiments.memory.planning.chain import chain_of
from experiments.memory.planning.host_update import (
    HostUpdatePolicy,
    Update,
    parameter_count,
    parameters_back,
    traffic,
    update_moves,
)
from experiments.workloads.step import Step


@dataclass(frozen=True)
class ZeroOffload(HostUpdatePolicy):
    """The optimizer on the host: gradients leave as they are made, updated parameters come back.

    Adam runs on the host next to its state.
    """

    name: ClassVar[str] = "zero_offload"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    adam: str = knob(
        "fused",
        "time of the update: the paper's vectorized kernel, torch's own (both by parameters), or bytes over "
        "bandwidth",
        choices=("fused", "torch", "bandwidth"),
    )
    delayed: bool = knob(
        False,
        "update during the next step's passes, parameters one step late (changes what is computed)",
    )

    def offload_plan(self, step: Step, update: Update, device: DeviceView) -> MemoryPlan:
        seconds = self.seconds(step, update, device.machine.host_bandwidth)
        back = parameters_for_passes(step, update) if self.delayed else parameters_back(step, update)
        moves = [*back, *update_moves(step, update, seconds, self.delayed)]
        if self.checkpoint:
            moves += keep_every_kth(chain_of(step), keep_last=True).moves
        return MemoryPlan(tuple(moves), notes=notes(step, update, seconds, device, moves))

    def seconds(self, step: Step, update: Update, host_bandwidth: float) -> float:
        """How long the whole update takes on the host."""
        if self.adam == "bandwidth":
            return traffic(step, update) / host_bandwidth if host_bandwidth > 0 else float("inf")
        return parameter_count(step, update) * (FUSED_ADAM if self.adam == "fused" else TORCH_ADAM)


def parameters_for_passes(step: Step, update: Update) -> list[MemoryMove]:
    """Parameters belong to the host, and are fetched for the passes in the order of their first use."""
    order = sorted(update.parameters, key=lambda tensor: (int(step.first_use[tensor]), tensor))
    return [PlaceTensor(0, tensor) for tensor in order] + [Prefetch(0, tensor, keep=True) for tensor in order]


def notes(
    step: Step, update: Update, seconds: float, device: DeviceView, moves: Sequence[MemoryMove]
) -> dict[str, object]:
    """Return the plan's closed forms: the update's time, what the host holds, the time of a delayed step."""
    out = update.bytes_of(step, tuple(tensor for tensor, _ in update.gradients))
    back = update.bytes_of(step, update.parameters)
    again = [op for move in moves if isinstance(move, Recompute) for op in move.ops]
    passes = float(np.delete(step.ops.seconds, update.ops).sum() + step.ops.seconds[again].sum())
    copies = [device.machine.out_time(out), device.machine.back_time(back)]
    if not device.machine.duplex:
        copies = [sum(copies)]
    return {
        "update_seconds": seconds,
        "host_bytes": back + out + update.bytes_of(step, update.states),
        "delayed_update_step_time": max(passes, seconds, *copies),
    }
