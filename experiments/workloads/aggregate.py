"""From a Step to a LayerGraph: ops grouped by the module that they belong to, in the order of the forward
pass.

A layer is a module path cut behind its first numbered part (``blocks.3``, ``features.0``), so that a
transformer's blocks and a network's convolutions are layers, and modules outside any list are layers of their
own. Ops that a container computes itself between its parts belong to the layer before them. A module that
runs twice is two layers (``name`` and ``name@2``), which keeps layers in topological order; its backward pass
counts with the first.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.einsum_capture import captured_operators
from experiments.workloads.layers import Handed, LayerGraph
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Floats, Step

FORWARD, BACKWARD, OPTIMIZER = (PHASES.index(name) for name in ("forward", "backward", "optimizer"))
PARAMETER, ACTIVATION = KINDS.index("parameter"), KINDS.index("activation")


def layer_graph(step: Step) -> LayerGraph:
    """The layers of ``step``; ``BadInput`` when it does not say which modules its ops belong to."""
    names, layer_of = _layers(step)
    flow = _flow(step, layer_of)
    count = len(names)
    sizes = step.tensors.bytes

    def bytes_by_layer(pairs: set[tuple[int, int]]) -> Floats:
        rows = np.array(sorted(pairs), np.int64).reshape(-1, 2)
        return np.bincount(rows[:, 0], sizes[rows[:, 1]], count).astype(np.float64)

    def total(column: Floats, phase: int) -> Floats:
        chosen = (step.ops.phase == phase) & (layer_of >= 0)
        return np.bincount(layer_of[chosen], column[chosen], count).astype(np.float64)

    optimizer = float(step.ops.seconds[step.ops.phase == OPTIMIZER].sum())
    return LayerGraph(
        name=step.name,
        layer=tuple(names),
        kind=tuple(_kinds(step, layer_of, count)),
        forward_seconds=total(step.ops.seconds, FORWARD),
        backward_seconds=total(step.ops.seconds, BACKWARD),
        forward_flops=total(step.ops.flops, FORWARD),
        backward_flops=total(step.ops.flops, BACKWARD),
        parameter_bytes=bytes_by_layer({(layer, tensor) for tensor, layer in flow.parameter_layer.items()}),
        output_bytes=bytes_by_layer(flow.outputs),
        stash_bytes=bytes_by_layer({(flow.producer[tensor], tensor) for tensor in flow.stashed}),
        predecessors=Ragged.of(sorted(flow.reads.get(layer, ())) for layer in range(count)),
        batch=int(step.facts.get("batch") or 1),
        timing=step.timing,
        timed_on=step.timed_on,
        facts={
            **step.facts,
            "optimizer_seconds": None if step.timing == "none" else optimizer,
            "tied": [[*pair, float(size)] for pair, size in sorted(flow.tied.items())],
        },
        einsums=captured_operators(step, layer_of),
        handed=_stashes(step, flow),
    )


def _cut(path: str) -> str:
    """``blocks.3.attention.qkv`` -> ``blocks.3``; a path without a number stays whole."""
    parts = path.split(".")
    numbered = next((index for index, part in enumerate(parts) if part[:1].isdigit()), len(parts) - 1)
    return ".".join(parts[: numbered + 1])


def _layers(step: Step) -> tuple[list[str], np.typing.NDArray[np.int64]]:
    """Layer names, and the layer of each forward and backward op (-1 for the optimizer's)."""
    paths = [_cut(path) for path in step.ops.module]
    containers = _containers(paths)
    names: list[str] = []
    first: dict[str, int] = {}
    layer_of = np.full(len(step.ops), -1, np.int64)
    current = ""
    for op in np.flatnonzero(step.ops.phase == FORWARD).tolist():
        path = paths[op]
        if not step.ops.view[op] and path != current and path and path not in containers:
            current = path
            times = sum(name.partition("@")[0] == path for name in names) + 1
            first.setdefault(path, len(names))
            names.append(path if times == 1 else f"{path}@{times}")
        layer_of[op] = max(len(names) - 1, 0)
    if not names:
        raise BadInput("its ops name no modules", step.name, "a step captured from a model")
    layer = len(names) - 1
    for op in np.flatnonzero(step.ops.phase == BACKWARD).tolist():
        layer = first.get(paths[op], layer)
        layer_of[op] = layer
    return names, layer_of


def _containers(paths: list[str]) -> set[str]:
    """Paths that have others inside them: what they compute themselves is glue, no layer."""
    distinct = set(paths)
    return {path for path in distinct if any(other.startswith(path + ".") for other in distinct)}


@dataclass
class _Flow:
    """Who makes and who reads each tensor, by layer; ``stashed`` has the layers whose backward passes read
    it, ``tied`` are the bytes that one layer reads of another's weights.
    """

    producer: dict[int, int] = field(default_factory=dict)
    parameter_layer: dict[int, int] = field(default_factory=dict)
    outputs: set[tuple[int, int]] = field(default_factory=set)
    reads: dict[int, set[int]] = field(default_factory=dict)
    stashed: dict[int, set[int]] = field(default_factory=dict)
    tied: dict[tuple[int, int], int] = field(default_factory=dict)


def _flow(step: Step, layer_of: np.typing.NDArray[np.int64]) -> _Flow:
    """Follow tensors through the forward pass; what the backward pass reads of them is stashed.

    A tensor changed in place belongs to the layer that changed it last; a tied parameter to its first reader.
    """
    flow = _Flow()
    for op in np.flatnonzero((step.ops.phase == FORWARD) & ~step.ops.view).tolist():
        layer = int(layer_of[op])
        for tensor in step.inputs[op].tolist():
            _read(flow, step, layer, tensor)
        for tensor in step.outputs[op].tolist():
            if step.tensors.kind[tensor] == ACTIVATION:
                flow.producer[tensor] = layer
    for op in np.flatnonzero((step.ops.phase == BACKWARD) & ~step.ops.view).tolist():
        for tensor in step.inputs[op].tolist():
            if tensor in flow.producer:
                flow.stashed.setdefault(tensor, set()).add(int(layer_of[op]))
    return flow


def _stashes(step: Step, flow: _Flow) -> tuple[Handed, ...]:
    """What is stashed for other layers' backward passes, of equal makers and keepers together."""
    found: dict[tuple[int, tuple[int, ...]], float] = defaultdict(float)
    for tensor, keepers in flow.stashed.items():
        if keepers != {flow.producer[tensor]}:
            found[flow.producer[tensor], tuple(sorted(keepers))] += float(step.tensors.bytes[tensor])
    return tuple(Handed(producer, size, keepers) for (producer, keepers), size in sorted(found.items()))


def _read(flow: _Flow, step: Step, layer: int, tensor: int) -> None:
    if step.tensors.kind[tensor] == PARAMETER:
        owner = flow.parameter_layer.setdefault(tensor, layer)
        if owner != layer:
            flow.tied[owner, layer] = int(step.tensors.bytes[tensor])
    made = flow.producer.get(tensor, layer)
    if made != layer:
        flow.outputs.add((made, tensor))
        flow.reads.setdefault(layer, set()).add(made)


def _kinds(step: Step, layer_of: np.typing.NDArray[np.int64], count: int) -> list[str]:
    """For each layer the name of its heaviest forward op: most FLOPs, then most bytes."""
    heaviest: list[tuple[float, float, str]] = [(-1.0, -1.0, "")] * count
    for op in np.flatnonzero((step.ops.phase == FORWARD) & ~step.ops.view).tolist():
        layer = int(layer_of[op])
        name = step.ops.target[op].removeprefix("aten.").partition(".")[0]
        weight = (float(step.ops.flops[op]), float(step.ops.bytes_moved[op]), name)
        heaviest[layer] = max(heaviest[layer], weight)
    return [name for _, _, name in heaviest]
