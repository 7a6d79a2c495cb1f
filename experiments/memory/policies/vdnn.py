"""vDNN (Rhu et al., MICRO 2016): inputs of layers leave while the layer computes, and return one layer ahead.

Which inputs leave and when they return is in ``planning.layer_offload``, which cDMA, CSWAP and vDNN++ build
on.

Convolution algorithms: a step has one time for each op, which stands for the smallest-memory algorithm (m).
With a ``library`` others are estimated from the shapes (``planning.convolution``); the performance-optimal
one (p) is the fastest, greedy the fastest that fits at its op. dyn tries (a) all+m, which must fit, (b)
none+p, (c) conv+p, (d) all+p, (e) conv+greedy, (f) all+greedy, (g) conv+m, (h) all+m; without a library that
comes down to none, conv, all. As in the frameworks of the time, one workspace as large as the largest chosen
is held for all convolutions; greedy gives each its own. Torch chooses its own algorithms, so measured runs
need ``library`` off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import Algorithm, DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.convolution import LIBRARIES, AlgorithmChoice, algorithms, fastest
from experiments.memory.planning.layer_offload import offload_plan
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Vdnn(MemoryPolicy):
    """What the three policies share: the choice among convolution algorithms."""

    library: str = knob(
        "none",
        "estimated convolution algorithms to choose from (measured runs: none)",
        choices=("none", *LIBRARIES),
    )

    def choices(self, step: Step) -> dict[int, list[AlgorithmChoice]]:
        return algorithms(step, self.library) if self.library != "none" else {}


def with_fastest_algorithms(plan: MemoryPlan, choices: dict[int, list[AlgorithmChoice]]) -> MemoryPlan:
    """Return ``plan`` with the fastest algorithm for each convolution (p).

    They share one workspace as large as the largest.
    """
    picked = {op: fastest(options) for op, options in choices.items()}
    workspace = max((choice.workspace for choice in picked.values()), default=0)
    return with_algorithms(
        plan, {op: replace(choice, workspace=workspace) for op, choice in picked.items()}, "p"
    )


def with_greedy_algorithms(
    plan: MemoryPlan, choices: dict[int, list[AlgorithmChoice]], device: DeviceView
) -> MemoryPlan:
    """``plan`` with the fastest algorithm for each convolution that fits at its op."""
    picked: dict[int, AlgorithmChoice] = {}
    for op, options in choices.items():
        for choice in sorted(options, key=lambda option: option.seconds):
            if device.estimate(with_algorithms(plan, {op: choice}, "greedy")).fits:
                picked[op] = choice
                break
    return with_algorithms(plan, picked, "greedy")


def with_algorithms(plan: MemoryPlan, picked: dict[int, AlgorithmChoice], mode: str) -> MemoryPlan:
    moves = [Algorithm(op, choice.seconds, choice.workspace) for op, choice in picked.items()]
    notes = {**plan.notes, "algorithms": mode, "fft": sum(choice.name == "fft" for choice in picked.values())}
    return replace(plan, moves=(*plan.moves, *moves), notes=notes)


@dataclass(frozen=True)
class VdnnAll(Vdnn):
    """vDNN_all: the inputs of all feature-extraction layers are offloaded (least memory)."""

    name: ClassVar[str] = "vdnn-all"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return with_fitting_algorithms(offload_plan(step, "all"), self.choices(step), device)


@dataclass(frozen=True)
class VdnnConv(Vdnn):
    """vDNN_conv: only the inputs of convolutional layers are offloaded."""

    name: ClassVar[str] = "vdnn-conv"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return with_fitting_algorithms(offload_plan(step, "conv"), self.choices(step), device)


def with_fitting_algorithms(
    plan: MemoryPlan, choices: dict[int, list[AlgorithmChoice]], device: DeviceView
) -> MemoryPlan:
    """One set of offloads: with the fastest algorithms where they fit, otherwise with the smallest."""
    if not choices:
        return plan
    quick = with_fastest_algorithms(plan, choices)
    return quick if device.estimate(quick).fits else plan


@dataclass(frozen=True)
class VdnnDyn(Vdnn):
    """vDNN_dyn: offload sets and convolution algorithms in the paper's order of trials.

    The first that fits is taken.
    """

    name: ClassVar[str] = "vdnn-dyn"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    pick: str = knob(
        "first", "keep the first plan that fits, or the fastest of conv and all", choices=("first", "fastest")
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        everything, nothing = offload_plan(step, "all"), MemoryPlan(notes={"offloads": "none"})
        if not device.estimate(everything).fits:
            return everything  # untrainable: carrying it out says at which op
        choices = self.choices(step)
        for trial in self.trials(nothing, offload_plan(step, "conv"), everything, choices, device):
            tried = device.estimate(trial)
            if not tried.fits:
                continue
            if self.pick == "fastest" and trial.notes["offloads"] == "conv":
                other = with_fastest_algorithms(everything, choices) if choices else everything
                return other if device.estimate(other).step_time < tried.step_time else trial
            return trial
        return everything

    def trials(
        self,
        nothing: MemoryPlan,
        convolutions: MemoryPlan,
        everything: MemoryPlan,
        choices: dict[int, list[AlgorithmChoice]],
        device: DeviceView,
    ) -> Iterator[MemoryPlan]:
        """(b) to (h) of the module's list."""
        if choices:
            yield from (
                with_fastest_algorithms(plan, choices) for plan in (nothing, convolutions, everything)
            )
            yield from (with_greedy_algorithms(plan, choices, device) for plan in (convolutions, everything))
        else:
            yield nothing
        yield from (convolutions, everything)
