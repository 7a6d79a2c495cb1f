"""vDNN (Rhu et al., MICRO 2016): inputs of layers leave while the layer computes, and return one layer ahead.

The paper's layers are the step's forward ops that are not views (``activations.layers``); X_i, the input of layer i,
is every saved activation whose last forward reader is op i and that a layer of an offloaded type reads. Layer types
come from op names. Feature-extraction layers are all but activation, fully connected and softmax. For kernel
traces this reads ``Conv2d_Forward`` as CONV, ``Linear_Forward`` as fully connected, and so on.

Convolution algorithms: a step has one time for each op, which stands for the smallest-memory algorithm (m). With a
``library`` others are estimated from the shapes (``planning.convolution``); the performance-optimal one (p) is the
fastest, greedy the fastest that fits at its op. dyn tries (a) all+m, which must fit, (b) none+p, (c) conv+p, (d) all+p,
(e) conv+greedy, (f) all+greedy, (g) conv+m, (h) all+m; without a library that comes down to none, conv, all. As in the
frameworks of the time, one workspace as large as the largest chosen is held for all convolutions; greedy gives each
its own. Torch chooses its own algorithms, so measured runs need ``library`` off.
Left open by the paper: a tensor whose prefetch no layer issued is fetched when its layer's backward begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import (
    Algorithm,
    DeviceView,
    MemoryPlan,
    MemoryPolicy,
    Move,
    Offload,
    Prefetch,
    Wait,
)
from experiments.memory.interface.activations import (
    ACT,
    CONV,
    FC,
    SOFTMAX,
    Layer,
    Saved,
    layers,
    saved_activations,
)
from experiments.memory.planning.convolution import LIBRARIES, Choice, algorithms, fastest
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Offloaded:
    """The tensors X_i that leave during layer ``layer`` (position in the list of layers)."""

    layer: int
    tensors: tuple[Saved, ...]


def offload_set(step: Step, net: list[Layer], which: str) -> list[Offloaded]:
    """X_i of CONV layers (``conv``) or of all feature-extraction layers (``all``), never of the last such layer."""
    types = {layer.op: layer.type for layer in net}
    wanted = {CONV} if which == "conv" else set(types.values()) - {ACT, FC, SOFTMAX}
    last = max((layer.op for layer in net if layer.type not in (ACT, SOFTMAX)), default=-1)
    by_op: dict[int, list[Saved]] = {}
    for saved in saved_activations(step):
        readers = [
            op for op in step.uses[saved.tensor].tolist() if saved.tensor in step.inputs[op] and op in types
        ]
        if saved.last_forward == saved.produced:
            readers = [saved.produced]
        if saved.last_forward != last and saved.bytes and any(types.get(op) in wanted for op in readers):
            by_op.setdefault(saved.last_forward, []).append(saved)
    return [Offloaded(i, tuple(by_op[layer.op])) for i, layer in enumerate(net) if layer.op in by_op]


def prefetch_layers(net: list[Layer], offloaded: list[Offloaded]) -> dict[int, int]:
    """For each layer whose backward issues a prefetch, the layer whose X it brings.

    The search of the paper: from layer i downwards, the first layer offloaded and not yet prefetched is taken; a
    CONV layer that is not stops the search. At most one a layer.
    """
    waiting = {entry.layer for entry in offloaded}
    issued = {}
    for i in reversed(range(len(net))):
        if net[i].backward_start == net[i].backward_end:
            continue
        for j in reversed(range(i)):
            if j in waiting:
                issued[i] = j
                waiting.discard(j)
                break
            if net[j].type == CONV:
                break
    return issued


def moves_for(step: Step, net: list[Layer], offloaded: list[Offloaded]) -> tuple[Move, ...]:
    """Offloads beside their layer with a wait at its end; prefetches beside a layer's backward with a wait at its end."""
    moves: list[Move] = []
    for entry in offloaded:
        op = net[entry.layer].op
        for saved in entry.tensors:
            # What the layer itself writes can leave only when the layer has ended.
            start = op + 1 if saved.produced == op or saved.tensor in step.outputs[op] else op
            moves += [Offload(start, saved.tensor, op), Wait(op + 1, saved.tensor)]
    by_layer = {entry.layer: entry for entry in offloaded}
    issuers = {j: i for i, j in prefetch_layers(net, offloaded).items()}
    for j, entry in by_layer.items():
        for saved in entry.tensors:
            moves += _fetch(saved, net[issuers[j]] if j in issuers else None)
    return tuple(sorted(moves, key=_turn))


def _turn(move: Move) -> tuple[int, int]:
    """At one op: what the layer that has just ended sends out, the wait for it, then the next layer's copies."""
    if isinstance(move, Wait):
        return move.at, 1
    return move.at, 0 if isinstance(move, Offload) and move.until < move.at else 2


def _fetch(saved: Saved, issuer: Layer | None) -> list[Move]:
    start = issuer.backward_start if issuer else saved.first_backward
    if start >= saved.first_backward or issuer is None:
        return [Prefetch(saved.first_backward, saved.tensor)]
    end = min(issuer.backward_end, saved.first_backward)
    return [Prefetch(start, saved.tensor), Wait(end, saved.tensor)]


def plan_of(step: Step, which: str) -> MemoryPlan:
    net = layers(step)
    offloaded = offload_set(step, net, which)
    return MemoryPlan(moves_for(step, net, offloaded), notes={"offloads": which})


@dataclass(frozen=True)
class Vdnn(MemoryPolicy):
    """What the three policies share: the choice among convolution algorithms."""

    library: str = knob(
        "none",
        "estimated convolution algorithms to choose from (measured runs: none)",
        choices=("none", *LIBRARIES),
    )

    def choices(self, step: Step) -> dict[int, list[Choice]]:
        return algorithms(step, self.library) if self.library != "none" else {}


def fastest_everywhere(plan: MemoryPlan, choices: dict[int, list[Choice]]) -> MemoryPlan:
    """``plan`` with the fastest algorithm for each convolution, in one workspace as large as the largest (p)."""
    picked = {op: fastest(options) for op, options in choices.items()}
    workspace = max((choice.workspace for choice in picked.values()), default=0)
    return with_algorithms(
        plan, {op: replace(choice, workspace=workspace) for op, choice in picked.items()}, "p"
    )


def greedily(plan: MemoryPlan, choices: dict[int, list[Choice]], device: DeviceView) -> MemoryPlan:
    """``plan`` with the fastest algorithm for each convolution that fits at its op."""
    picked: dict[int, Choice] = {}
    for op, options in choices.items():
        for choice in sorted(options, key=lambda option: option.seconds):
            if device.estimate(with_algorithms(plan, {op: choice}, "greedy")).fits:
                picked[op] = choice
                break
    return with_algorithms(plan, picked, "greedy")


def with_algorithms(plan: MemoryPlan, picked: dict[int, Choice], mode: str) -> MemoryPlan:
    moves = [Algorithm(op, choice.seconds, choice.workspace) for op, choice in picked.items()]
    notes = {**plan.notes, "algorithms": mode, "fft": sum(choice.name == "fft" for choice in picked.values())}
    return replace(plan, moves=(*plan.moves, *moves), notes=notes)


@dataclass(frozen=True)
class VdnnAll(Vdnn):
    """vDNN_all: the inputs of all feature-extraction layers are offloaded (least memory)."""

    name: ClassVar[str] = "vdnn-all"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return fixed(plan_of(step, "all"), self.choices(step), device)


@dataclass(frozen=True)
class VdnnConv(Vdnn):
    """vDNN_conv: only the inputs of convolutional layers are offloaded."""

    name: ClassVar[str] = "vdnn-conv"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return fixed(plan_of(step, "conv"), self.choices(step), device)


def fixed(plan: MemoryPlan, choices: dict[int, list[Choice]], device: DeviceView) -> MemoryPlan:
    """One set of offloads: with the fastest algorithms where they fit, otherwise with the smallest."""
    if not choices:
        return plan
    quick = fastest_everywhere(plan, choices)
    return quick if device.estimate(quick).fits else plan


@dataclass(frozen=True)
class VdnnDyn(Vdnn):
    """vDNN_dyn: offload sets and convolution algorithms in the paper's order of trials; the first that fits."""

    name: ClassVar[str] = "vdnn-dyn"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    pick: str = knob(
        "first", "keep the first plan that fits, or the fastest of conv and all", choices=("first", "fastest")
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        everything, nothing = plan_of(step, "all"), MemoryPlan(notes={"offloads": "none"})
        if not device.estimate(everything).fits:
            return everything  # untrainable: carrying it out says at which op
        choices = self.choices(step)
        for trial in self.trials(nothing, plan_of(step, "conv"), everything, choices, device):
            tried = device.estimate(trial)
            if not tried.fits:
                continue
            if self.pick == "fastest" and trial.notes["offloads"] == "conv":
                other = fastest_everywhere(everything, choices) if choices else everything
                return other if device.estimate(other).step_time < tried.step_time else trial
            return trial
        return everything

    def trials(
        self,
        nothing: MemoryPlan,
        convolutions: MemoryPlan,
        everything: MemoryPlan,
        choices: dict[int, list[Choice]],
        device: DeviceView,
    ) -> Iterator[MemoryPlan]:
        """(b) to (h) of the module's list."""
        if choices:
            yield from (fastest_everywhere(plan, choices) for plan in (nothing, convolutions, everything))
            yield from (greedily(plan, choices, device) for plan in (convolutions, everything))
        else:
            yield nothing
        yield from (convolutions, everything)
