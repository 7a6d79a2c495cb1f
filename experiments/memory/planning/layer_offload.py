"""Inputs of layers that leave while the layer computes, and return one layer ahead (vDNN, MICRO 2016).

The paper's layers are the step's forward ops that are not views (``activations.layers``); X_i, the input of
layer i, is every saved activation whose last forward reader is op i and that a layer of an offloaded type
reads. Layer types come from op names. Feature-extraction layers are all but activation, fully connected and
softmax. For kernel traces this reads ``Conv2d_Forward`` as CONV, ``Linear_Forward`` as fully connected, and
so on.

Left open by the paper: a tensor whose prefetch no layer issued is fetched when its layer's backward begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.memory.interface import MemoryMove, MemoryPlan, Offload, Prefetch, WaitForCopy
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
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Offloaded:
    """The tensors X_i that leave during layer ``layer`` (position in the list of layers)."""

    layer: int
    tensors: tuple[Saved, ...]


def offload_set(step: Step, net: list[Layer], which: str) -> list[Offloaded]:
    """Return X_i of CONV layers (``conv``) or of all feature-extraction layers (``all``).

    Never of the last such layer.
    """
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

    The search of the paper: from layer i downwards, the first layer offloaded and not yet prefetched is
    taken; a CONV layer that is not stops the search. At most one a layer.
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


def moves_for(step: Step, net: list[Layer], offloaded: list[Offloaded]) -> tuple[MemoryMove, ...]:
    """Return offloads overlapped with their layer, and prefetches with a layer's backward pass.

    Each with a wait at its layer's end.
    """
    moves: list[MemoryMove] = []
    for entry in offloaded:
        op = net[entry.layer].op
        for saved in entry.tensors:
            # What the layer itself writes can leave only when the layer has ended.
            start = op + 1 if saved.produced == op or saved.tensor in step.outputs[op] else op
            moves += [Offload(start, saved.tensor, op), WaitForCopy(op + 1, saved.tensor)]
    by_layer = {entry.layer: entry for entry in offloaded}
    issuers = {j: i for i, j in prefetch_layers(net, offloaded).items()}
    for j, entry in by_layer.items():
        for saved in entry.tensors:
            moves += _fetch(saved, net[issuers[j]] if j in issuers else None)
    return tuple(sorted(moves, key=_turn))


def _turn(move: MemoryMove) -> tuple[int, int]:
    """At one op: what the layer that has just ended sends out, the wait for it, then the next
    layer's copies.
    """
    if isinstance(move, WaitForCopy):
        return move.at, 1
    return move.at, 0 if isinstance(move, Offload) and move.until < move.at else 2


def _fetch(saved: Saved, issuer: Layer | None) -> list[MemoryMove]:
    start = issuer.backward_start if issuer else saved.first_backward
    if start >= saved.first_backward or issuer is None:
        return [Prefetch(saved.first_backward, saved.tensor)]
    end = min(issuer.backward_end, saved.first_backward)
    return [Prefetch(start, saved.tensor), WaitForCopy(end, saved.tensor)]


def offload_plan(step: Step, which: str) -> MemoryPlan:
    """Return the plan that offloads the layers of ``which`` and nothing else."""
    net = layers(step)
    offloaded = offload_set(step, net, which)
    return MemoryPlan(moves_for(step, net, offloaded), notes={"offloads": which})
