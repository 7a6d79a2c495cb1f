"""Micro-batches that are parts of sequences: what they cost, and when their plan is wrong.

In a causal transformer a token reads the keys and values of those before it, so a sequence can be cut by
tokens: a slice needs the slices before it forward, and those after it backward (Li et al., TeraPipe, ICML'21,
section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.units import DTYPE_BYTES
from experiments.parallel.interface.estimate import PlanningEstimate
from experiments.parallel.interface.plan import BACKWARD, FORWARD, ParallelPlan, Slice, Slot
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats


def sequence_length(model: LayerGraph) -> int:
    """Return the tokens of a sample; ``BadInput`` for a model of anything else."""
    sequence = model.facts.get("sequence")
    if not sequence:
        raise BadInput("has no sequences to cut", model.name, "a model of token sequences")
    return int(sequence)


def attention_shares(estimate: PlanningEstimate) -> Floats:
    """Return the share of each layer's work that grows with the square of the sequence.

    Shape: (layers,).

    A weight takes 2 FLOPs a token; what a layer with weights does beyond that are products of queries, keys
    and values. A layer without weights of its own (a tied head, a loss) is linear.
    """
    model = estimate.model
    tokens = model.batch * float(model.facts.get("sequence") or 1)
    weights = 2 * tokens * model.parameter_bytes / DTYPE_BYTES[estimate.dtype]
    known = (weights > 0) & (model.forward_flops > 0)
    linear = np.divide(weights, model.forward_flops, out=np.ones(len(model)), where=known)
    found: Floats = np.clip(1 - linear, 0.0, 1.0)
    return found


def slice_shares(part: Slice, sequence: int, attention: Floats) -> Floats:
    """Return the share of a whole sequence's pass through each layer that ``part`` takes.

    All its samples together. Shape: (layers,).

    The square part counts pairs of a token with those up to it, so that the slices of a sequence sum to 1.
    """
    end = part.context + part.tokens
    pairs = (end**2 - part.context**2) / sequence**2
    return part.samples * ((1 - attention) * part.tokens / sequence + attention * pairs)


def slice_violations(plan: ParallelPlan) -> list[str]:
    """Return what is wrong with slices that do not make up the batch."""
    return list(_uncovered_slices(plan)) if plan.slices else []


def _uncovered_slices(plan: ParallelPlan) -> Iterator[str]:
    if len(plan.slices) != plan.micro_batches:
        yield f"{len(plan.slices)} slices for {plan.micro_batches} micro-batches"
    samples = expected = 0
    for number, part in enumerate(plan.slices):
        if min(part.samples, part.tokens) < 1 or part.context != expected:
            yield f"slice {number} has {part.tokens} tokens after {part.context}, expected after {expected}"
        samples += part.samples if part.context == 0 else 0
        end = part.context + part.tokens
        expected = 0 if end == plan.sequence else end
    if samples != plan.batch or expected:
        yield f"the slices make up {samples} of {plan.batch} samples"


def slice_order_violations(plan: ParallelPlan) -> Iterator[str]:
    """Yield the slots of a slice that come before those they need on the same worker."""
    for number, worker in enumerate(plan.workers if plan.slices else ()):
        place = {slot: index for index, slot in enumerate(worker.slots)}
        for slot, index in place.items():
            needed = _slice_before(plan, slot)
            if needed is not None and place.get(needed, index) >= index:
                yield f"slot {slot} comes before {needed}, whose keys and values it needs, on worker {number}"


def _slice_before(plan: ParallelPlan, slot: Slot) -> Slot | None:
    """The slice before forward, the slice behind backward."""
    if slot.kind == FORWARD and plan.slices[slot.micro_batch].context:
        return slot._replace(micro_batch=slot.micro_batch - 1)
    behind = slot.micro_batch + 1
    if slot.kind == BACKWARD and behind < len(plan.slices) and plan.slices[behind].context:
        return slot._replace(micro_batch=behind)
    return None
