"""Jobs that a reader leaves out, by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints


def leave_out(reasons: Sequence[tuple[Any, str]], name: str) -> tuple[Ints, dict[str, int]]:
    """Return the places of the jobs that nothing speaks against, and how many the first reason left out.

    ``reasons`` are booleans over jobs, each with what it says of them. ``BadInput`` where no job stays.
    """
    out, counts = np.zeros(len(reasons[0][0]), bool), dict[str, int]()
    for against, reason in reasons:
        if count := int((against & ~out).sum()):
            counts[reason] = count
        out |= against
    if out.all():
        raise BadInput(
            f"has no job to schedule: {tell(counts)[0]}", name, "one job on GPUs that ended or more"
        )
    return np.flatnonzero(~out), counts


def tell(left_out: Mapping[str, int]) -> tuple[str, ...]:
    """One line about what was left out; nothing where that is nothing."""
    why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return (f"{sum(left_out.values())} jobs left out: {why}",) if left_out else ()
