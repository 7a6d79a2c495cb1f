"""Equal parts of a batch: how many there can be, and what they change."""

from __future__ import annotations

from experiments.workloads.step import Step

#: Most micro-batches that are tried for a step that does not know its batch.
MOST = 1024


def divisors(step: Step) -> list[int]:
    """Return the numbers of equal parts, ascending; powers of two where the batch is not known.

    A batch that is accumulated in parts has each of them cut.
    """
    batch = step.facts.get("batch")
    if batch:
        batch = int(batch) // int(step.facts.get("accumulate", 1))
    if not batch:
        return [2**i for i in range(MOST.bit_length())]
    return [parts for parts in range(1, batch + 1) if batch % parts == 0]


def caveats(step: Step) -> dict[str, object]:
    """Return what is not the same as one whole batch."""
    normalized = any("batch_norm" in target or "batchnorm" in target.lower() for target in step.ops.target)
    if not normalized:
        return {}
    return {
        "caveat": "batch normalization sees a part of the batch: its statistics differ from a whole batch's"
    }
