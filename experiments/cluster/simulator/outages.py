"""When nodes fail and are back: drawn from the run's seed, each node by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.cluster.interface import ClusterPolicy


def draw_outages(policy: ClusterPolicy, node: int, seed: int, begin: float) -> Iterator[tuple[float, float]]:
    """Yield times at which ``node`` fails and is back, in s: exponential both, without end.

    Nothing where the policy's knobs name no mean time between failures.
    """
    if policy.node_mtbf is None:
        return
    rng, now = np.random.default_rng([seed, 1, node]), begin
    while True:
        fails = now + rng.exponential(policy.node_mtbf)
        now = fails + rng.exponential(policy.node_repair)
        yield fails, now
