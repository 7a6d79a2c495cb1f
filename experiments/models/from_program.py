"""Models from exported graphs: the graph as a module, a loss on its output, and a batch that fits
its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from experiments.models.exported import Exported
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification
from experiments.workloads.program import GraphProgram


def from_program(program: GraphProgram, geometry: Geometry, weights: bool, training: bool) -> Model:
    """The model of ``program`` at ``geometry``; ``weights=False`` leaves its tensors uninitialized.

    In training it gives what the loss is made of, else all outputs of the file in their order.
    """
    shapes = program.shapes(geometry.batch, geometry.sequence, geometry.image)
    if program.format == "onnx":
        from experiments.models.onnx_plan import plan_calls
    else:
        from experiments.models.pt2_plan import plan_calls
    outputs = program.given(training)
    plan = plan_calls(program, shapes, outputs)
    body = Exported(program, plan, weights)
    inputs = tuple(
        InputSpec(entry.name, shape, entry.high, int(entry.ones))
        for entry, shape in zip(program.inputs, shapes, strict=True)
    )
    place = outputs.index(program.output) if len(outputs) > 1 else None
    return _model(program, body, inputs, plan.output_shape, place)


def _model(
    program: GraphProgram,
    body: Exported,
    inputs: tuple[InputSpec, ...],
    out: tuple[int, ...],
    place: int | None,
) -> Model:
    """Cross entropy where the output has classes: in its last dimension, or for pictures [batch, classes, h,
    w] in its second; the mean square where it has none; an output that is one number is the loss itself.
    """
    facts = {"format": program.format, "output": program.output[:80]}
    if not out:
        return Model(body, inputs, 0, facts)
    dense = len(out) >= 4
    classes = out[1] if dense else out[-1]
    if len(out) < 2 or classes < 2:
        return Model(
            Objective(body, _of_place(_square, place)), (*inputs, InputSpec("target", out)), 1, facts
        )
    shape = (out[0], *out[2:]) if dense else out[:-1]
    target = InputSpec("target", shape, classes)
    loss = F.cross_entropy if dense else classification
    return Model(Objective(body, _of_place(loss, place)), (*inputs, target), 1, facts)


def _of_place(loss: Callable[[Any, Tensor], Tensor], place: int | None) -> Callable[[Any, Tensor], Tensor]:
    """The loss of one of several outputs, or of the only one."""
    return loss if place is None else lambda outputs, target: loss(outputs[place], target)


def _square(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target)
