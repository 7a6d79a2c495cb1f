"""Naive swapping to host memory: every saved activation goes out after its last forward use and comes back.

No paper: this is what frameworks call activation offloading (``torch.autograd.graph.save_on_cpu``), which
copies each saved tensor out and fetches it when its backward op asks. It knows no times and no capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryMove, MemoryPlan, MemoryPolicy, Offload, Prefetch
from experiments.memory.interface.activations import last_forward_op, saved_activations
from experiments.workloads.step import Step


@dataclass(frozen=True)
class SwapAll(MemoryPolicy):
    """Every saved activation is copied to the host and back.

    It leaves after its last forward use and returns before its first backward use.
    """

    name: ClassVar[str] = "swap_all"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    ahead: int = knob(
        1, "ops before its first backward use that a tensor is fetched (0: on demand)", low=0, high=1000
    )
    least_bytes: int = knob(0, "smaller tensors stay on the device", low=0, high=2**40, unit="bytes")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        loss = last_forward_op(step)
        moves: list[MemoryMove] = []
        for saved in saved_activations(step):
            fetch = max(loss + 1, saved.first_backward - self.ahead)
            if saved.bytes < max(1, self.least_bytes) or saved.last_forward + 1 >= saved.first_backward:
                continue
            moves.append(Offload(saved.last_forward + 1, saved.tensor, saved.last_forward))
            moves.append(Prefetch(fetch, saved.tensor))
        return MemoryPlan(tuple(moves))
