"""Selective activation recomputation (Korthikanti et al., MLSys 2023): drop what is large and cheap to
recompute.

``attention`` drops the attention core of every layer (section 4.2: the scores, their softmax and dropout) and
makes it again, from queries and keys, when the backward pass reaches it. Fused attention never stores the
core: then there is nothing to do, and the notes say so. ``full`` keeps only what enters each transformer
layer, and runs the whole layer again (the paper's comparison); with ``offload`` what is kept waits on the
host, from its last use in the forward pass until the layer above begins to run again (torchtune's
``enable_activation_offloading``, which fetches in a stream of its own; one layer ahead is ours; the last
layer's input is fetched when it is needed). ``ratio`` is the same idea for any step: saved activations that
can be recomputed without a matrix product or convolution with weights, by bytes per second of the ops that
make them, highest first, until what stays fits the device (all of them where nothing fits).

The closed forms of the paper's tables (tensor and sequence parallel) are ``estimates.memory``. Left open:
where a layer begins; here at the last place before its attention where one activation alone leads on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, Lineage, MemoryPlan, MemoryPolicy, Recompute
from experiments.memory.interface.activations import (
    CONV,
    FC,
    Saved,
    last_forward_op,
    layer_type,
    saved_activations,
)
from experiments.memory.planning.attention import Core, attention_cores, fused_attention, is_product
from experiments.memory.planning.chain import chain_of
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.planning.reversal import reverse_by_segments
from experiments.memory.planning.swaps import Gap, TensorSwap, earliest_return, moves_of
from experiments.workloads.step import Step

FUSED = "attention is fused and never stores its core: nothing to do"
ABSENT = "the step has no attention: nothing to do"


@dataclass(frozen=True)
class Cheap:
    """A saved activation and the seconds of the ops that recompute it from others that stay."""

    saved: Saved
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        return self.saved.bytes / self.seconds if self.seconds else float("inf")


def core_demands(step: Step, cores: list[Core]) -> list[Demand]:
    """Each core's saved tensors before the first backward op that reads one of them."""
    saved = {entry.tensor: entry for entry in saved_activations(step)}
    demands = []
    for core in cores:
        inside = [saved[tensor] for tensor in core.tensors if tensor in saved]
        if inside:
            at = min(entry.first_backward for entry in inside)
            demands.append(Demand(at, tuple(entry.tensor for entry in inside)))
    return demands


def cheap_activations(step: Step, rematerializer: Rematerializer) -> list[Cheap]:
    """Saved activations whose makers, back to other saved ones, hold no product with weights; best first."""
    all_saved = saved_activations(step)
    found = []
    for saved in all_saved:
        others = {
            o.tensor
            for o in all_saved
            if o.tensor != saved.tensor and o.first_backward >= saved.first_backward
        }
        chain = rematerializer.chain([saved.tensor], others.__contains__, saved.first_backward)
        if saved.bytes and not chain.stuck and not any(_is_heavy(step, op) for op in chain.ops):
            found.append(Cheap(saved, sum(float(step.ops.seconds[op]) for op in chain.ops)))
    return sorted(found, key=lambda cheap: (-cheap.bytes_per_second, cheap.saved.tensor))


def _is_heavy(step: Step, op: int) -> bool:
    return layer_type(step.ops.target[op]) in (CONV, FC) and not is_product(step, op)


def end_of_layers(starts: list[int], units: int) -> list[int]:
    """Return the state that the head begins with: the last layer is as many units long as the one before it.

    Nothing where there are too few layers to tell.
    """
    if len(starts) < 2:
        return []
    end = 2 * starts[-1] - starts[-2]
    return [end] if end < units else []


def one_layer_ahead(
    step: Step, lineage: Lineage, plan: MemoryPlan, tensors: Collection[int]
) -> list[TensorSwap]:
    """Each of ``tensors`` away between the passes, and back when the rerun before its next need begins."""
    loss = last_forward_op(step)
    reruns = [move for move in plan.moves if isinstance(move, Recompute)]
    needs = {tensor: step.uses[tensor].tolist() for tensor in tensors}
    for rerun in reruns:
        for tensor in set(lineage.external(rerun.ops)) & set(tensors):
            needs[tensor].append(rerun.at)
    found = []
    for tensor in sorted(tensors):
        after = max(op for op in needs[tensor] if op <= loss)
        before = min((op for op in needs[tensor] if op > loss), default=-1)
        gap = Gap(tensor, int(step.tensors.bytes[tensor]), after, before)
        if earliest_return(gap) <= before:
            ahead = max((rerun.at for rerun in reruns if rerun.at < before), default=before)
            found.append(TensorSwap(gap, max(ahead, earliest_return(gap))))
    return found


@dataclass(frozen=True)
class SelectiveRecompute(MemoryPolicy):
    """Recomputes the attention core only: most of full recomputation's memory for a fraction of its time."""

    name: ClassVar[str] = "selective_recompute"
    mechanism: ClassVar[str] = "recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    select: str = knob(
        "attention",
        "the attention core; whole layers; or by bytes saved per second until it fits",
        choices=("attention", "full", "ratio"),
    )
    offload: bool = knob(False, "inputs of layers wait on the host (select full)")

    def __post_init__(self) -> None:
        if self.offload and self.select != "full":
            what = f"offload sends inputs of whole layers away; {self.select!r} runs no whole layer again"
            raise BadInput(what, "knobs.offload", "false, or select full")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        rematerializer = Rematerializer(step)
        if self.select == "ratio":
            return self._by_ratio(step, device, rematerializer)
        cores = attention_cores(step, rematerializer.lineage)
        fused = fused_attention(step)
        if not cores and (self.select == "attention" or not fused):
            return MemoryPlan(notes={"reason": FUSED if fused else ABSENT})
        if self.select == "full":
            return self._whole_layers(step, [core.first for core in cores] or fused)
        return MemoryPlan(
            rematerializer.moves_for(core_demands(step, cores)), notes={"attention_cores": len(cores)}
        )

    def _whole_layers(self, step: Step, firsts: list[int]) -> MemoryPlan:
        """Layers begin at the last candidate before the first op of their attention; the head is kept."""
        chain = chain_of(step)
        ends = [candidate.op for candidate in chain.forward.candidates]
        starts = sorted({bisect_left(ends, first) for first in firsts} - {0})
        behind = end_of_layers(starts, chain.units)
        states = [*starts, *behind]
        plan = chain.plan(reverse_by_segments(chain.units, states), keep_last=bool(behind))
        if not self.offload:
            return plan
        entering = {t for state in states for t in chain.forward.candidates[state - 1].border}
        swaps = one_layer_ahead(step, chain.rematerializer.lineage, plan, entering)
        return replace(plan, moves=(*moves_of(swaps), *plan.moves))

    def _by_ratio(self, step: Step, device: DeviceView, rematerializer: Rematerializer) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        order = cheap_activations(step, rematerializer)
        demands = [Demand(cheap.saved.first_backward, (cheap.saved.tensor,)) for cheap in order]

        def first(count: int) -> MemoryPlan:
            return MemoryPlan(rematerializer.moves_for(demands[:count]), notes={"dropped": count})

        low, high = 1, len(demands)
        while low < high:
            middle = (low + high) // 2
            if device.estimate(first(middle)).fits:
                high = middle
            else:
                low = middle + 1
        return first(high)
