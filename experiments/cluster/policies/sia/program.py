"""The integer program that gives each job one configuration or none (section 3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.cluster.policies.sia.configurations import Configuration
from experiments.core.integer_programs import minimize

#: What a job may have, and its goodput there over the job's own least.
Offers = Mapping[Configuration, float]
#: What it costs that a job has nothing, where its least configuration is worth 1.
NOTHING_COSTS = 1.1
#: How near to the best the answer is.
GAP = 1e-4


def choose(offers: Sequence[Offers], capacity: Mapping[str, int], power: float) -> list[Configuration | None]:
    """Return each job's configuration; ``None``: it has none.

    The sum over all jobs of ``worth ** power`` is made as large as possible (below 0: as small), less what
    having nothing costs.
    """
    from scipy.optimize import Bounds, LinearConstraint  # scipy takes a while
    from scipy.sparse import csr_array

    columns = [
        (job, option, worth)
        for job, offered in enumerate(offers)
        for option, worth in offered.items()
        if worth > 0 and option.gpus <= capacity.get(option.kind, 0)
    ]
    chosen: list[Configuration | None] = [None] * len(offers)
    if not columns:
        return chosen
    kinds, numbers, ones = sorted(capacity), np.arange(len(columns)), np.ones(len(columns))
    gain = np.sign(power) * np.array([worth for _, _, worth in columns]) ** power + NOTHING_COSTS
    jobs = [job for job, _, _ in columns]
    kind_of = [kinds.index(option.kind) for _, option, _ in columns]
    gpus = np.array([option.gpus for _, option, _ in columns], np.float64)
    once = csr_array((ones, (jobs, numbers)), (len(offers), len(columns)))
    room = csr_array((gpus, (kind_of, numbers)), (len(kinds), len(columns)))
    found = minimize(
        -gain,
        integrality=np.ones(len(columns), np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(once, -np.inf, 1),
            LinearConstraint(room, -np.inf, [float(capacity[kind]) for kind in kinds]),
        ],
        options={"mip_rel_gap": GAP},
    )
    if found.x is None:
        raise RuntimeError(f"the program has no answer: {found.message}")
    for column in np.flatnonzero(found.x > 0.5):
        job, option, _ = columns[column]
        chosen[job] = option
    return chosen
