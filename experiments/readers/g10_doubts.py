"""What is hard to believe in a G10 trace: its utilization, and times that were interpolated from other batch
sizes.

The artifact's times are not all measured: several batch sizes lie, op for op, on the line between two others
of the same model. That shows only next to those others, so it is looked for among the traces in the same
folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import archive
from experiments.readers.base import HEAD, Reader
from experiments.readers.plausibility import low_utilization
from experiments.workloads.step import Floats, Step

#: What the artifact profiled on.
DEVICE = "a100-40g"
CYCLE = 1 / 1.2e9
#: Multiply-adds of one image forward. ResNet-152 and Inception v3: torchvision's model pages; SENet-154:
#: Cadene's pretrained-models.pytorch. Those of attention models follow from their products.
FORWARD_PRODUCTS = {"ResNet152": 11.51e9, "Inceptionv3": 5.71e9, "SENet154": 20.74e9}
#: Two FLOPs for a multiply-add; the backward pass does every product twice.
FLOPS_PER_PRODUCT = 2 * 3
#: Files next to a trace that are looked at, at most.
MOST_BESIDE = 64
#: Times of one op differ between batch sizes by more than this many cycles, or say nothing.
SAME = 2 * CYCLE


def utilization(step: Step) -> tuple[str, ...]:
    """The warning about MFU, from the model's published FLOPs or the products of its linear layers."""
    return low_utilization(step, DEVICE, step_flops(step))


def step_flops(step: Step) -> float:
    """FLOPs of a training step; 0 where the file does not tell."""
    known = FORWARD_PRODUCTS.get(str(step.facts.get("model")))
    if known is not None:
        return known * FLOPS_PER_PRODUCT * int(step.facts["batch"])
    return FLOPS_PER_PRODUCT * sum(_products(step))


def _products(step: Step) -> Iterator[float]:
    """Multiply-adds of each linear layer: with [m, k] x [k, n] = [m, n] they are the root of the three sizes'
    product.
    """
    for op, name in enumerate(step.ops.name):
        used = [*step.inputs[op], *step.outputs[op]]
        if name.startswith("Linear_Forward") and len(used) == 3:
            yield math.sqrt(math.prod(step.tensors.bytes[tensor] / 4 for tensor in used))


def interpolation_doubts(step: Step, others: Mapping[int, Floats]) -> tuple[str, ...]:
    """Return a warning where the times of ``step`` lie on the line between those of two of ``others``.

    ``others`` are seconds of each op, by batch.
    """
    batch = int(step.facts["batch"])
    smaller = sorted((b for b in others if b < batch), reverse=True)
    larger = sorted(b for b in others if b > batch)
    for low in smaller:
        for high in larger:
            if _on_the_line(step.ops.seconds, others[low], others[high], (batch - low) / (high - low)):
                return (
                    f"every op's time lies on the line between batch {low} and batch {high}: interpolated",
                )
    return ()


def _on_the_line(times: Floats, low: Floats, high: Floats, share: float) -> bool:
    """To within rounding, wherever the ends differ; never where they differ nowhere."""
    if not len(times) == len(low) == len(high):
        return False
    telling = np.abs(high - low) > SAME
    line = low + share * (high - low)
    return bool(telling.any() and (np.abs(times - line)[telling] <= SAME).all())


def beside(path: Path, step: Step, reader: Reader) -> tuple[str, ...]:
    """Warnings that the traces of the same model in the same folder give rise to."""
    return interpolation_doubts(
        step, {other.facts["batch"]: other.ops.seconds for other in _family(path, step, reader)}
    )


def _family(path: Path, step: Step, reader: Reader) -> Iterator[Step]:
    """Other readable traces in the folder of ``path`` whose names begin alike and that are of the
    same model.
    """
    stem = path.name.rpartition("_")[0]
    names = sorted(o for o in path.parent.glob("*.json*") if o != path and o.name.rpartition("_")[0] == stem)
    for other in names[:MOST_BESIDE]:
        try:
            data, name = archive.unpack(other.read_bytes(), other.name)
            if not reader.recognizes(data[:HEAD], name):
                continue
            found: Step = reader.read(data, name, WorkloadOptions()).value
        except (BadInput, OSError):
            continue  # what stands next to a trace is not what was asked about
        if found.facts["model"] == step.facts["model"]:
            yield found
