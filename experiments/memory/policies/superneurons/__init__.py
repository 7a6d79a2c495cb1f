"""SuperNeurons (Wang et al., PPoPP 2018): liveness, a tensor cache in host memory, and cost-aware
recomputation.

- *Liveness*: a tensor is freed after its last use (the simulator does that for every plan).
- *Recomputation*: outputs of pooling, activation, normalization, softmax and dropout layers are dropped after
  the forward pass; what lies between two other layers (checkpoints) is a segment. Where the bytes of a
  segment do not exceed ``l_peak``, the largest working set of one backward op, the whole segment runs again
  once (speed-centric); otherwise each of its tensors is made when it is needed and what was made on the way
  is freed (memory-centric).
- *Unified tensor pool*: when an allocation does not fit, the least recently used tensor goes to the host; in
  the backward pass of a convolution, what the one before it needs is fetched if there are free bytes
  (``tensor_cache``).

Not reproduced: the choice of convolution algorithms (a step has one time per op), and the pool's own
allocator. Left open by the paper: equality with l_peak is speed-centric; a segment stays where keeping what
it is made from takes as many bytes as dropping it frees (frameworks that work in place have freed the
checkpoint's output already); a dropped tensor is made before the first op that reads it, though it may have
been dropped without need.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, Drop, MemoryPlan, MemoryPolicy
from experiments.memory.interface.activations import (
    ACT,
    CONV,
    NORM,
    POOL,
    SOFTMAX,
    Saved,
    last_forward_op,
    layer_type,
    layers,
    saved_activations,
)
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.policies.superneurons.tensor_cache import TensorCache
from experiments.workloads.step import Step

CHEAP = (POOL, NORM, ACT, SOFTMAX)


@dataclass(frozen=True)
class CheapSegment:
    """Consecutive cheap forward ops, the saved activations they make, and the bytes of all that they make."""

    ops: tuple[int, ...]
    saved: tuple[Saved, ...]
    bytes: int


def is_cheap(step: Step, op: int) -> bool:
    name = step.ops.target[op]
    return layer_type(name) in CHEAP or "dropout" in name.lower()


def segments(step: Step, rematerializer: Rematerializer) -> list[CheapSegment]:
    """The stretches between checkpoints, in forward order; views belong to whatever they lie in."""
    writes = rematerializer.lineage.writes
    makers = {saved.tensor: saved for saved in saved_activations(step)}
    found: list[list[int]] = [[]]
    for op in range(last_forward_op(step) + 1):
        if is_cheap(step, op):
            found[-1].append(op)
        elif not step.ops.view[op] and found[-1]:
            found.append([])
    result = []
    for ops in found:
        made = dict.fromkeys(t for op in ops for t in writes[op] if not step.persistent[t])
        saved = tuple(makers[t] for t in made if t in makers and _made_by(rematerializer, t, ops))
        if saved:
            result.append(CheapSegment(tuple(ops), saved, sum(int(step.tensors.bytes[t]) for t in made)))
    return result


def _made_by(rematerializer: Rematerializer, tensor: int, ops: Sequence[int]) -> bool:
    return set(rematerializer.lineage.writers[tensor]) <= set(ops)


def demands_of(segment: CheapSegment, l_peak: int) -> list[Demand]:
    """One rerun of the whole segment, or one for each op that needs something of it."""
    if segment.bytes <= l_peak:
        at = min(saved.first_backward for saved in segment.saved)
        return [Demand(at, tuple(saved.tensor for saved in segment.saved))]
    return [Demand(saved.first_backward, (saved.tensor,)) for saved in segment.saved]


@dataclass(frozen=True)
class Superneurons(MemoryPolicy):
    """Recomputes cheap layers by cost, and caches the outputs of the others in host memory by last use."""

    name: ClassVar[str] = "superneurons"
    mechanism: ClassVar[str] = "offload and recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    recompute: str = knob(
        "cost-aware",
        "how segments run again",
        choices=("cost-aware", "speed-centric", "memory-centric", "never"),
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        rematerializer = Rematerializer(step)
        loss = last_forward_op(step)
        l_peak = int(step.op_need[loss + 1 :].max(initial=0))
        limit = {"speed-centric": 2**62, "memory-centric": -1}.get(self.recompute, l_peak)
        demands: list[Demand] = []
        held: set[int] = set()
        for segment in segments(step, rematerializer) if self.recompute != "never" else ():
            sources = self._sources(step, rematerializer, segment)
            if sources is not None:
                held |= sources
                demands += demands_of(segment, limit)
        remade = rematerializer.moves_for(demands, held)
        dropped = {move.tensor for move in remade if isinstance(move, Drop)}
        ahead = _ahead(step)
        cache = TensorCache(step, rematerializer.lineage, device.capacity, remade, ahead, dropped)
        notes = {"l_peak": l_peak, "segments": len(demands), "dropped": len(dropped)}
        return MemoryPlan(cache.run(), notes=notes)

    def _sources(self, step: Step, rematerializer: Rematerializer, segment: CheapSegment) -> set[int] | None:
        """Outputs of checkpoints that must be kept beyond their own use; ``None`` where that
        frees nothing.
        """
        own = {t for op in segment.ops for t in rematerializer.lineage.writes[op]}
        reads = rematerializer.lineage.external(segment.ops)
        extra = {
            t
            for t in reads
            if t not in own and not step.persistent[t] and step.last_use[t] <= last_forward_op(step)
        }
        freed = sum(saved.bytes for saved in segment.saved)
        return extra if sum(int(step.tensors.bytes[t]) for t in extra) < freed else None


def _ahead(step: Step) -> dict[int, list[int]]:
    """When the backward pass of a convolution begins, what the convolution before it will read."""
    convolutions = [
        layer for layer in layers(step) if layer.type == CONV and layer.backward_end > layer.backward_start
    ]
    found: dict[int, list[int]] = {}
    for before, layer in itertools.pairwise(convolutions):
        reads = [
            t for op in range(before.backward_start, before.backward_end) for t in step.inputs[op].tolist()
        ]
        found[layer.backward_start] = [t for t in dict.fromkeys(reads) if not step.persistent[t]]
    return found
