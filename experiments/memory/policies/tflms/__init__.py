"""TFLMS (Le et al. 2018; version 2 with its auto-tuner): swaps by distance in the graph, found by rewriting;
no times.

``tflms`` is version 2: tensors leave for readers more than ``threshold`` levels away and are fetched
``ahead`` levels before, neighboring readers share a swap-in (``groupby``). What is not given is tuned: it
raises the synchronization (0 none, 1 swap-outs, 2 swap-ins, 3 both) until a simulated pass over memory fits,
then seeks the largest threshold, the largest ahead and the largest groupby by bisection, as if fitting were
monotone, which it need not be; every pass is kept in the notes. ``tflms-v1`` swaps every edge from a forward
to a backward op, up to ``n_tensors``.

Left open: the pass runs the ops in the order of the step (levels only measure distance) and leaves a tenth of
memory free; a step that fits as it is is left alone. Where nothing passes, the smallest settings with full
synchronization are taken. A group of readers after another finds the tensor swapped out again, which here
costs a second copy. Of several triggers at a level the first op wins. Readers always share the one device
copy (``fuse_swapins`` of version 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.interface.activations import Saved, last_forward_op, saved_activations
from experiments.memory.planning.graph import DataFlow, between, members
from experiments.memory.planning.swaps import Gap, TensorSwap, earliest_return, gaps_of, moves_of
from experiments.memory.policies.tflms.level_swaps import (
    BOTH,
    INS,
    NONE,
    LevelSwaps,
    Settings,
    blocking_moves,
)
from experiments.workloads.step import Step


@dataclass
class Tuner:
    """Bisections over ``play``; ``plays`` records every pass."""

    swaps: LevelSwaps
    room: float
    plays: list[dict[str, Any]] = field(default_factory=list)

    def fits(self, settings: Settings) -> bool:
        fits = self.swaps.play(settings, self.room)
        self.plays.append({**settings.to_json(), "fits": fits})
        return fits

    def synchronization(self, start: Settings) -> Settings | None:
        """The least synchronization with which ``start`` fits."""
        tried = (replace(start, sync=sync) for sync in range(start.sync, BOTH + 1))
        return next((settings for settings in tried if self.fits(settings)), None)

    def largest(self, low: int, high: int, with_value: Callable[[int], Settings]) -> int:
        """The largest value that passes, ``low`` being known to."""
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(with_value(middle)):
                low = middle
            else:
                high = middle - 1
        return low

    def first(self, high: int, with_value: Callable[[int], Settings]) -> int:
        """``high`` if it passes, else the first of its halves that does, else 0."""
        while high and not self.fits(with_value(high)):
            high //= 2
        return high


@dataclass(frozen=True)
class Tflms(MemoryPolicy):
    """TFLMS v2: swaps of tensors for distant readers.

    Threshold, ahead, grouping and synchronization are auto-tuned.
    """

    name: ClassVar[str] = "tflms"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    threshold: int | None = knob(None, "levels to a reader beyond which a tensor leaves; empty: tuned", low=1)
    ahead: int | None = knob(None, "levels before its reader that a tensor is fetched; empty: tuned", low=0)
    groupby: int | None = knob(None, "levels between readers that share a swap-in; empty: tuned", low=0)
    sync_mode: int | None = knob(
        None, "copies that block: 0 none, 1 out, 2 in, 3 both; empty: tuned", low=0, high=3
    )
    ratio: float = knob(0.9, "share of the device that the tuner fills", low=0.1, high=1.0)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        swaps = LevelSwaps(step)
        tuner = Tuner(swaps, self.ratio * device.capacity)
        settings = self._tune(tuner)
        moves = blocking_moves(swaps.swaps(settings), settings.sync)
        return MemoryPlan(moves, notes={**settings.to_json(), "levels": swaps.levels, "plays": tuner.plays})

    def _tune(self, tuner: Tuner) -> Settings:
        def value_or(value: int | None, default: int) -> int:
            return default if value is None else value

        start = Settings(value_or(self.threshold, 1), value_or(self.ahead, 1), value_or(self.groupby, 0))
        if self.sync_mode is not None:
            start = replace(start, sync=self.sync_mode)
            if not tuner.fits(start):
                return start
            found: Settings | None = start
        else:
            found = tuner.synchronization(replace(start, sync=NONE))
        if found is None:
            return replace(start, sync=BOTH)
        return self._relaxed(tuner, found)

    def _relaxed(self, tuner: Tuner, found: Settings) -> Settings:
        """The largest threshold; then, where swap-ins do not block, the largest ahead and groupby."""
        levels = tuner.swaps.levels
        if self.threshold is None:
            low, base = found.threshold, found
            found = replace(found, threshold=tuner.largest(low, levels, lambda x: replace(base, threshold=x)))
        if found.sync & INS:
            return found
        if self.ahead is None:
            low, fixed = found.ahead, found
            found = replace(found, ahead=tuner.largest(low, levels, lambda x: replace(fixed, ahead=x)))
        if self.groupby is None:
            last = found
            found = replace(found, groupby=tuner.first(levels, lambda x: replace(last, groupby=x)))
        return found


@dataclass(frozen=True)
class TflmsV1(MemoryPolicy):
    """TFLMS v1: every edge from a forward to a backward op is swapped.

    Triggers are found by the chain rule or by level.
    """

    name: ClassVar[str] = "tflms-v1"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    n_tensors: int = knob(-1, "tensors swapped, in level order; -1: all", low=-1)
    lb: int = knob(1, "least levels between a swap-in and its reader", low=1)
    ub: int = knob(10_000, "most levels between a swap-in and its reader", low=1)
    strategy: str = knob("chain_rule", "where a swap-in is triggered", choices=("chain_rule", "direct_order"))
    swap_branches: bool = knob(False, "edges between forward ops are swapped too")
    branch_threshold: int = knob(0, "levels that such an edge must exceed", low=0)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        flow = DataFlow(step)
        gaps = [Gap(s.tensor, s.bytes, s.last_forward, s.first_backward) for s in self.chosen(step, flow)]
        gaps += self._branches(step, flow)
        wide = [gap for gap in gaps if gap.bytes and gap.before > gap.after + 1]
        swaps = [
            TensorSwap(gap, max(earliest_return(gap), self.trigger(step, flow, gap) + 1)) for gap in wide
        ]
        return MemoryPlan(moves_of(swaps), notes={"swapped": len(swaps)})

    def chosen(self, step: Step, flow: DataFlow) -> list[Saved]:
        """The first ``n_tensors`` with an edge to the backward pass, by the level of their producer."""
        saved = sorted(saved_activations(step), key=lambda s: (flow.level[s.produced], s.produced, s.tensor))
        return saved if self.n_tensors < 0 else saved[: self.n_tensors]

    def _branches(self, step: Step, flow: DataFlow) -> list[Gap]:
        if not self.swap_branches:
            return []
        loss, local = last_forward_op(step), ~step.persistent
        far = [gap for gap in gaps_of(step) if gap.before <= loss and local[gap.tensor]]
        return [gap for gap in far if flow.level[gap.before] - flow.level[gap.after] > self.branch_threshold]

    def trigger(self, step: Step, flow: DataFlow, gap: Gap) -> int:
        """The op after which the swap-in starts; the reader's latest input where the rules find none."""
        found = self._by_chain(step, flow, gap) if self.strategy == "chain_rule" else None
        if found is None:
            found = self._by_level(flow, gap)
        latest = max(flow.feeders[gap.before], default=gap.before - 1)
        return min(latest if found is None else found, gap.before - 1)

    def _by_level(self, flow: DataFlow, gap: Gap) -> int | None:
        """The first op at the largest level inside the bounds that reaches the reader."""
        level, reader, producer = flow.level, gap.before, int(flow.step.uses[gap.tensor][0])
        lb = self.lb if level[reader] - self.lb > level[producer] else 1
        reaching = flow.ancestors[reader] & between(gap.after + 1, reader)
        lowest = max(level[reader] - self.ub, level[producer])
        for wanted in range(level[reader] - lb - 1, lowest, -1):
            found = reaching & flow.by_level[wanted]
            if found:
                return next(members(found))
        return None

    def _by_chain(self, step: Step, flow: DataFlow, gap: Gap) -> int | None:
        """Of the ops ``lb`` levels below the producer, the first backward reader of their results that is
        early enough.
        """
        producer, loss = int(step.uses[gap.tensor][0]), last_forward_op(step)
        wanted = flow.level[producer] + self.lb
        if wanted >= len(flow.by_level):
            return None
        nexts = members(flow.by_level[wanted] & between(0, loss + 1))
        fed = [op for op in nexts if flow.ancestors[op] >> producer & 1]
        readers = {
            use
            for op in fed
            for tensor in step.outputs[op].tolist()
            for use in step.uses[tensor].tolist()
            if max(loss, gap.after) < use < gap.before
        }
        return min(readers, default=None)
