"""Layrub (Liu et al., PPoPP 2018 and TACO 2018): gradients take over activation buffers; activations leave by
layer.

Intra-layer: a layer's weight gradient is computed first, so the gradient of its input can be written over the
activation that dies there; activations and their gradients then share one buffer. In a step: where a backward
op makes a temporary and is the last to read an activation at least as large, the one takes over the other's
memory. Kernels of torch cannot do that, so measured runs need the knob off. Inter-layer: a tensor that no
later forward layer reads leaves at once, and the backward pass of each layer asks for what the next one
needs: one layer ahead, no times used. Left open by the paper: where sizes differ, the old buffer must be the
larger.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryMove, MemoryPlan, MemoryPolicy, Offload, Prefetch
from experiments.memory.interface.activations import layers, saved_activations
from experiments.workloads.step import KINDS, Step


def overlays(step: Step) -> tuple[tuple[int, int], ...]:
    """Return (new, old) for temporaries of the backward pass that can lie over an activation.

    Every one of which the activation dies where the temporary is made.

    Of several activations the smallest that holds it; each gives its memory away once.
    """
    temporary, activation = KINDS.index("temporary"), KINDS.index("activation")
    kind, size, last = step.tensors.kind, step.tensors.bytes, step.last_use
    found = []
    for op in range(len(step.ops)):
        if step.phase_of(op) != "backward" or step.ops.view[op]:
            continue
        dying = [
            t
            for t in step.inputs[op].tolist()
            if kind[t] == activation and last[t] == op and t not in step.outputs[op]
        ]
        for new in step.outputs[op].tolist():
            if kind[new] not in (temporary, activation) or step.first_use[new] != op or step.persistent[new]:
                continue
            fitting = [t for t in dying if size[t] >= size[new] > 0]
            if fitting:
                old = min(fitting, key=lambda t: (int(size[t]), t))
                dying.remove(old)
                found.append((new, old))
    return tuple(found)


def one_layer_ahead(step: Step) -> dict[int, int]:
    """Return, for each saved activation, the op before which it is asked for.

    That is where the layer above begins its backward pass.
    """
    starts = sorted(
        {layer.backward_start for layer in layers(step) if layer.backward_start < layer.backward_end}
    )
    fetch = {}
    for saved in saved_activations(step):
        own = bisect_right(starts, saved.first_backward) - 1
        fetch[saved.tensor] = starts[own - 1] if own >= 1 else saved.first_backward
    return fetch


@dataclass(frozen=True)
class Layrub(MemoryPolicy):
    """Gradients overwrite dying activations; activations leave when the forward pass is done with them."""

    name: ClassVar[str] = "layrub"
    mechanism: ClassVar[str] = "offload and recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    intra_layer: bool = knob(True, "gradients take over activation buffers (simulated only)")
    inter_layer: bool = knob(True, "activations leave after the forward pass and return one layer ahead")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if device.estimate(MemoryPlan()).fits:
            return MemoryPlan()
        moves: list[MemoryMove] = []
        if self.inter_layer:
            fetch = one_layer_ahead(step)
            for saved in saved_activations(step):
                if saved.bytes and saved.last_forward + 1 < saved.first_backward:
                    back = max(fetch[saved.tensor], saved.last_forward + 1)
                    moves.append(Offload(saved.last_forward + 1, saved.tensor, saved.last_forward))
                    moves.append(Prefetch(back, saved.tensor))
        return MemoryPlan(tuple(moves), overlays=overlays(step) if self.intra_layer else ())
