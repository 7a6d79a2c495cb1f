"""Replicas by an integer program over rates: as many requests a second as possible are served.

x[i, j] says whether model i is on device j, y[i, j] what it serves there:

    maximise   sum y + SPARE x sum x
    subject to sum_j y[i, j] <= rate_i                     no more than is asked
               y[i, j] <= rate_i x x[i, j]                 only where the weights are
               sum_i y[i, j] x seconds_i <= 1              a device has one second a second
               sum_i x[i, j] x bytes_i <= memory

The last term fills memory that is left: means know nothing of bursts, which further replicas take up.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.core.integer_programs import minimize
from experiments.serving.interface.deployment import Deployment

#: What a replica is worth, as a share of the smallest rate.
SPARE = 1e-3
#: Branches that the solver looks at, and the share of the optimum at which it stops.
MOST_NODES, GAP = 2000, 1e-3


def choose_replicas(deployment: Deployment) -> list[tuple[int, ...]]:
    """Return the models of each device.

    The search is bounded by its nodes; where it ends there, its best so far counts.
    """
    from scipy.optimize import Bounds, LinearConstraint  # scipy takes a while to load

    models = [place for place, one in enumerate(deployment.models) if one.cost.divides(1, 1)]
    told = [deployment.models[one] for one in models]
    count, devices = len(models), deployment.cluster.devices
    pairs = count * devices
    seconds = np.array([math.fsum(one.cost.stage_times(1, 1, 1)) for one in told])
    weights = np.array([one.bytes for one in told]) / deployment.cluster.memory
    rates = np.minimum([one.rate for one in told], devices / seconds)
    # Pairs stand model by model, each with all devices; columns are x of all pairs, then y.
    of_model = np.kron(np.eye(count), np.ones(devices))
    on_device = np.eye(devices)
    nothing = np.zeros((pairs, pairs))
    found = minimize(
        np.concatenate([np.full(pairs, -SPARE * rates.min(initial=1.0)), np.full(pairs, -1.0)]),
        integrality=np.repeat([1, 0], pairs),
        bounds=Bounds(0, np.repeat([1.0, np.inf], pairs)),
        constraints=[
            LinearConstraint(np.hstack([nothing[:count], of_model]), ub=rates),
            LinearConstraint(np.hstack([-np.diag(np.repeat(rates, devices)), np.eye(pairs)]), ub=0.0),
            LinearConstraint(np.hstack([nothing[:devices], np.kron(seconds, on_device)]), ub=1.0),
            LinearConstraint(np.hstack([np.kron(weights, on_device), nothing[:devices]]), ub=1.0),
        ],
        options={"node_limit": MOST_NODES, "mip_rel_gap": GAP},
    )
    if found.x is None:
        return [()] * devices
    chosen = found.x[:pairs].reshape(count, devices) > 0.5
    return [tuple(models[one] for one in np.flatnonzero(chosen[:, device])) for device in range(devices)]
