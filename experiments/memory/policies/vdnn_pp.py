"""vDNN++ (Shriram, Garg, Kulkarni, IPDPS 2019): vDNN without the wait at the end of each layer, in a packed
pool.

The next layer starts at once; an offloaded input's memory is given back when its copy has ended, an
allocation that finds no free bytes waits for the oldest copies, and a backward layer waits for its own input
only. In addition to vDNN's sets of layers there is every second convolution. Which addresses tensors get is
decided ahead, in several orders (as the ops ask, largest first, longest first), and the order with the
smallest pool is kept. Left open by the public sources: the names and ties of the orders. Copies on the host
may be compressed there, which shrinks pinned memory and not the transfer; the notes say by how much. Live
runs use torch's allocator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import (
    DeviceView,
    MemoryMove,
    MemoryPlan,
    MemoryPolicy,
    MemoryPool,
    Offload,
    Prefetch,
    WaitForCopy,
)
from experiments.memory.interface.activations import layers
from experiments.memory.planning.layer_offload import moves_for, offload_set
from experiments.memory.planning.offsets import (
    largest_first,
    load_bound,
    longest_first,
    online,
    pack,
    packed_bytes,
    pool_bytes,
    stays_of,
)
from experiments.workloads.step import Step

#: Orders of placement, by the name that the notes give.
ORDERS = {"size": largest_first, "lifetime": longest_first}


def absences(moves: tuple[MemoryMove, ...]) -> dict[int, list[tuple[int, int]]]:
    """For each tensor the ops in which it is away, by the plan alone."""
    found: dict[int, list[tuple[int, int]]] = {}
    left: dict[int, int] = {}
    for move in moves:
        if isinstance(move, Offload):
            left[move.tensor] = max(move.until, move.at - 1) + 1
        elif isinstance(move, Prefetch) and move.tensor in left:
            start = left.pop(move.tensor)
            if move.at > start:
                found.setdefault(move.tensor, []).append((start, move.at))
    return found


@dataclass(frozen=True)
class VdnnPp(MemoryPolicy):
    """vDNN's offloads without waits at layer ends, in a pool laid out ahead in the best of several orders."""

    name: ClassVar[str] = "vdnn_pp"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    offloads: str = knob("all", "layers whose inputs leave", choices=("all", "conv", "alternate_conv"))
    pool: bool = knob(True, "addresses laid out ahead; false: bytes are only counted")
    host_ratio: float = knob(
        1.0, "how much smaller copies are once compressed on the host (notes only)", low=1.0, high=100.0
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if device.estimate(MemoryPlan()).fits:
            return MemoryPlan(notes={"offloads": "none"})
        net = layers(step)
        leaving = offload_set(step, net, "all" if self.offloads == "all" else "conv")
        if self.offloads == "alternate_conv":
            leaving = leaving[::2]
        moves = tuple(move for move in moves_for(step, net, leaving) if not isinstance(move, WaitForCopy))
        pinned = sum(saved.bytes for entry in leaving for saved in entry.tensors)
        notes: dict[str, object] = {
            "offloads": self.offloads,
            "pinned_bytes": round(pinned / self.host_ratio),
        }
        if not self.pool:
            return MemoryPlan(moves, notes=notes)
        pool, sizes = best_pool(step, moves, device.capacity)
        return MemoryPlan(moves, space=pool, notes={**notes, "pool_bytes_by_order": sizes})


def best_pool(step: Step, moves: tuple[MemoryMove, ...], capacity: int) -> tuple[MemoryPool, dict[str, int]]:
    """The order with the smallest pool, and what each came to, and the bound."""
    stays, fixed = stays_of(step, absences(moves)), set(np.nonzero(step.persistent)[0].tolist())
    sizes = {"as executed": pool_bytes(online(stays, capacity, "best_fit"))}
    tried = {name: pack(stays, "best_fit", fixed, key) for name, key in ORDERS.items()}
    sizes |= {name: packed_bytes(stays, addresses) for name, addresses in tried.items()}
    best = min(sizes, key=lambda name: sizes[name])
    sizes["bound"] = load_bound(stays, len(step.ops))
    if best == "as executed":
        return MemoryPool("best_fit"), sizes
    return MemoryPool("planned", offsets=tuple(sorted(tried[best].items()))), sizes
