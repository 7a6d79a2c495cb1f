"""What the memory of training steps is made of where it is largest, one step next to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.summaries.drawing import plot, points
from experiments.workloads.step import KINDS, PHASES, Step

#: In the order in which they are stacked.
PARTS = (
    *("frozen weights", "trained weights", "gradients", "optimizer state"),
    *("activations", "loss", "temporaries and inputs"),
)
#: What the outermost module of a captured step computes itself.
LOSS = "loss"
Chosen = npt.NDArray[np.bool_]


def peak_bars(steps: Mapping[str, Step]) -> list[dict[str, Any]]:
    """Return a bar for each training step, by its name; no plot where none of them trains."""
    found = {name: bytes_at_peak(step) for name, step in steps.items() if step.facts.get("training")}
    if not found:
        return []
    rows = [points(part, list(found), [parts[part] for parts in found.values()]) for part in PARTS]
    title = "Memory where a step needs most, by what it holds"
    return [
        plot(title, "bar", "training", "memory (bytes)", [row for row in rows if any(row["y"])], stack=True)
    ]


def bytes_at_peak(step: Step) -> dict[str, int]:
    """Bytes of each of ``PARTS`` at the op where most is live; they add up to the live peak."""
    peak = int(np.argmax(step.live_bytes))
    living = step.persistent | ((step.first_use <= peak) & (peak <= step.death))
    bytes_of = {
        part: int(step.tensors.bytes[chosen & living].sum()) for part, chosen in parts_of(step).items()
    }
    rest = int(step.live_bytes[peak]) - sum(bytes_of.values())
    return {part: bytes_of.get(part, rest) for part in PARTS}


def parts_of(step: Step) -> dict[str, Chosen]:
    """Return which tensors are of which part; the rest is of the last."""
    kinds = {kind: step.tensors.kind == number for number, kind in enumerate(KINDS)}
    written, loss = _written(step), _of_the_loss(step) & ~step.persistent & ~kinds["gradient"]
    return {
        "frozen weights": kinds["parameter"] & ~written,
        "trained weights": kinds["parameter"] & written,
        "gradients": kinds["gradient"] | kinds["gradient_buffer"],
        "optimizer state": kinds["optimizer_state"],
        "activations": kinds["activation"] & ~loss,
        "loss": loss,
    }


def _written(step: Step) -> Chosen:
    found = np.zeros(len(step.tensors), np.bool_)
    found[step.outputs.values] = True
    return found


def _of_the_loss(step: Step) -> Chosen:
    """Tensors that the loss, or the module whose output it reads, makes in the passes: logits and all that is
    as large.
    """
    modules = {LOSS, _head(step)}
    found = np.zeros(len(step.tensors), np.bool_)
    made = np.array([name in modules for name in step.ops.module], np.bool_)
    for op in np.flatnonzero(made & (step.ops.phase < PHASES.index("optimizer"))).tolist():
        found[[tensor for tensor in step.outputs[op].tolist() if step.first_use[tensor] == op]] = True
    return found


def _head(step: Step) -> str:
    """The module that made what the loss reads first."""
    modules = np.array(step.ops.module)
    moves = (modules == LOSS) & (step.ops.bytes_moved > 0)
    read = step.inputs[int(np.argmax(moves))].tolist() if moves.any() else []
    makers = [int(step.first_use[tensor]) for tensor in read if not step.persistent[tensor]]
    return str(modules[makers[0]]) if makers else LOSS
