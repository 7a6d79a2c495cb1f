"""The tensors of a paged optimizer's state that belong to the host."""

from __future__ import annotations

import numpy as np

from experiments.workloads.step import KINDS, Step


def paged_states(step: Step) -> list[int]:
    """Return the tensors of the optimizer's state that are resident on the host."""
    fewest = step.facts.get("paged_from")
    if not isinstance(fewest, int):
        return []
    states = np.nonzero(step.tensors.kind == KINDS.index("optimizer_state"))[0].tolist()
    large = [t for t in states if np.prod(step.tensors.shape[t], dtype=np.int64) >= fewest]
    return [t for t in large if len(step.uses[t]) and not step.tensors.name[t].endswith(".master")]
