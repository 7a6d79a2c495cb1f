"""ZeRO-Infinity (Rajbhandari et al., SC 2021): parameters, gradients and optimizer on the host or on storage.

Nothing of the model's state stays on the device. A parameter is fetched ``ahead`` layers before each pass
uses it and given up right after; a gradient leaves as it is made; the update runs on the host, streaming what
is resident on storage through host memory in chunks, so that it takes the longest of the processor, of
reading and of writing, and overlaps with the passes of no step. A layer is a stretch of a pass
that uses one parameter. One device: the partition of each parameter over many devices, which multiplies the
host's bandwidth, enters by the closed forms of ``estimates.zero``. Left open by the paper: what to do when
all fits; by default nothing moves then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.hardware.host_adam import FUSED_ADAM
from experiments.memory.interface import (
    DeviceView,
    MemoryMove,
    MemoryPlan,
    Offload,
    OnHost,
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
    update_moves,
)
from experiments.memory.planning.parameter_streaming import stretches
from experiments.workloads.step import Step


def parameter_moves(
    step: Step, update: Update, tier: str, ahead: int, reruns: Sequence[Recompute] = ()
) -> list[MemoryMove]:
    """Each parameter placed on ``tier``, fetched ``ahead`` stretches before it is used, given up after it."""
    order = stretches(step, update, reruns)
    moves: list[MemoryMove] = [PlaceTensor(0, tensor, tier) for tensor in update.parameters]
    freed: dict[int, int] = {}
    for index, stretch in enumerate(order):
        start = order[max(0, index - ahead)].first
        start = max(start, freed.get(stretch.tensor, 0))
        moves.append(Prefetch(start, stretch.tensor, keep=True))
        moves.append(Offload(stretch.last + 1, stretch.tensor, stretch.last, tier))
        freed[stretch.tensor] = stretch.last + 1
    return moves


@dataclass(frozen=True)
class ZeroInfinity(HostUpdatePolicy):
    """The model's whole state on host or storage; parameters pass through the device layer by layer."""

    name: ClassVar[str] = "zero_infinity"
    mechanism: ClassVar[str] = "offload"

    parameters_on: str = knob("host", "where parameters lie", choices=("host", "storage"))
    optimizer_on: str = knob("host", "where the optimizer's state lies", choices=("host", "storage"))
    ahead: int = knob(2, "layers ahead of its use that a parameter is fetched", low=0, high=64)

    def offload_plan(self, step: Step, update: Update, device: DeviceView) -> MemoryPlan:
        seconds = self.seconds(step, update, device)
        through = "storage" if "storage" in (self.parameters_on, self.optimizer_on) else "host"
        recomputed = keep_every_kth(chain_of(step), keep_last=True).moves if self.checkpoint else ()
        reruns = [move for move in recomputed if isinstance(move, Recompute)]
        moves = [
            *(self.placed(move, update, through) for move in update_moves(step, update, seconds)),
            *parameter_moves(step, update, self.parameters_on, self.ahead, reruns),
            *recomputed,
        ]
        return MemoryPlan(tuple(moves), notes={"update_seconds": seconds})

    def placed(self, move: MemoryMove, update: Update, through: str) -> MemoryMove:
        """The optimizer's state on its tier, its ops streaming from there."""
        if isinstance(move, PlaceTensor) and move.tensor in set(update.states):
            return PlaceTensor(0, move.tensor, self.optimizer_on)
        return OnHost(move.at, move.seconds, through) if isinstance(move, OnHost) else move

    def seconds(self, step: Step, update: Update, device: DeviceView) -> float:
        """The longest of the processor's work and of what streams from storage and back."""
        streamed = update.bytes_of(step, update.states) if self.optimizer_on == "storage" else 0
        streamed += update.bytes_of(step, update.parameters) if self.parameters_on == "storage" else 0
        machine = device.machine
        lanes = [parameter_count(step, update) * FUSED_ADAM]
        if streamed:
            lanes += [machine.read.time(streamed), machine.write.time(streamed)]
        return max(lanes)
