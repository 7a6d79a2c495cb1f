"""How long a step takes on any number of devices, from the few on which a job was measured (section 3.2).

``T_grad = a_c + b_c m`` for ``m`` samples on a device at once. ``T_sync`` is nothing on one device,
``a_r + b_r (K - 2)`` on ``K`` of one node and ``a_n + b_n (K - 2)`` on several nodes. A step with ``s``
accumulations takes ``s T_grad + (T_grad^y + T_sync^y)^(1/y)``: with ``y`` of 1 nothing overlaps, with 10
nearly all does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from experiments.cluster.interface.measurements import Measurement
from experiments.workloads.step import Floats

#: Parameters in their order, and where the fit begins.
COMPUTE, COMPUTE_EACH, NETWORK, NETWORK_EACH, LOCAL, LOCAL_EACH, OVERLAP = range(7)
BEGIN = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
#: Parameters that nothing was measured of are taken to be as good as nothing: Pollux tries what looks best.
NOTHING = 1e-8
MOST_OVERLAP = 10.0
#: Weights of the overlap and of slowing down with more devices, which are taken to be small.
OVERLAP_WEIGHT, SLOWING_WEIGHT = 1e-3, 1e-2


class StepModel(NamedTuple):
    """The seven parameters of one job."""

    parameters: tuple[float, ...]

    def compute(self, each: Floats) -> Floats:
        """Seconds of computing the gradient of so many samples."""
        return self.parameters[COMPUTE] + self.parameters[COMPUTE_EACH] * each

    def sync(self, several_nodes: bool, gpus: Floats) -> Floats:
        """Seconds of exchanging gradients."""
        alpha = NETWORK if several_nodes else LOCAL
        more = np.maximum(gpus - 2, NOTHING)
        seconds = self.parameters[alpha] + self.parameters[alpha + 1] * more
        return np.where(gpus > 1, seconds, NOTHING)

    def step(self, several_nodes: bool, gpus: Floats, each: Floats, accumulations: Floats) -> Floats:
        """Seconds of a whole step."""
        compute, overlap = self.compute(each), self.parameters[OVERLAP]
        sync = self.sync(several_nodes, gpus)
        last = np.exp(np.logaddexp(overlap * np.log(compute), overlap * np.log(sync)) / overlap)
        return np.asarray(accumulations * compute + last)


class Samples:
    """Measurements in columns: nodes, GPUs, samples on each, seconds of a step and of its exchange."""

    def __init__(self, measured: Floats) -> None:
        self.nodes, self.gpus, self.each, self.step, sync = measured.T
        self.compute = compute = np.maximum(self.step - sync, NOTHING)
        self.log_compute, self.log_step = np.log(compute), np.log(self.step)
        self.several, self.local = self.nodes > 1, (self.nodes == 1) & (self.gpus > 1)
        self.more = np.maximum(self.gpus - 2, NOTHING)

    def bounds(self) -> tuple[Floats, Floats, Floats]:
        """Where the fit begins, and the least and most of each parameter; equal where nothing tells it."""
        begin = np.array(BEGIN)
        least = np.array([NOTHING] * 6 + [1.0])
        most = np.array([np.inf] * 6 + [MOST_OVERLAP])
        if len(np.unique(self.each)) == 1:
            begin[COMPUTE] = least[COMPUTE] = most[COMPUTE] = self.compute.mean() / 2
        untold = []
        if not self.several.any():
            untold += [NETWORK, NETWORK_EACH]
        if not self.local.any():
            untold += [LOCAL, LOCAL_EACH]
        if not (self.gpus > 2).any():
            untold += [NETWORK_EACH, LOCAL_EACH]
        begin[untold] = most[untold] = NOTHING
        return begin, least, most

    def error(self, parameters: Floats) -> tuple[float, Floats]:
        """Root mean squares of the logarithmic errors of computing and of steps, and the gradient."""
        overlap = parameters[OVERLAP]
        compute = parameters[COMPUTE] + parameters[COMPUTE_EACH] * self.each
        alpha = np.where(self.several, parameters[NETWORK], np.where(self.local, parameters[LOCAL], NOTHING))
        beta = np.where(
            self.several, parameters[NETWORK_EACH], np.where(self.local, parameters[LOCAL_EACH], 0)
        )
        sync = alpha + beta * self.more
        log_compute, log_sync = np.log(compute), np.log(sync)
        together = np.logaddexp(overlap * log_compute, overlap * log_sync)
        part = np.exp(overlap * log_compute - together)
        compute_error, compute_slope = _root_mean_square(log_compute - self.log_compute)
        step_error, step_slope = _root_mean_square(together / overlap - self.log_step)
        by_compute = (compute_slope + step_slope * part) / compute
        by_sync = step_slope * (1 - part) / sync
        by_overlap = (
            step_slope * ((part * log_compute + (1 - part) * log_sync) - together / overlap) / overlap
        )
        slope = np.array(
            [
                by_compute.sum(),
                (by_compute * self.each).sum(),
                by_sync[self.several].sum(),
                (by_sync * self.more)[self.several].sum(),
                by_sync[self.local].sum(),
                (by_sync * self.more)[self.local].sum(),
                by_overlap.sum() + 2 * OVERLAP_WEIGHT * (overlap - 1),
            ]
        )
        error = compute_error + step_error + OVERLAP_WEIGHT * (overlap - 1) ** 2
        for base in (NETWORK, LOCAL):
            slowing = parameters[base + 1] / parameters[base]
            error += SLOWING_WEIGHT * slowing**2
            slope[base + 1] += 2 * SLOWING_WEIGHT * slowing / parameters[base]
            slope[base] -= 2 * SLOWING_WEIGHT * slowing**2 / parameters[base]
        return float(error), slope


def fit(measured: Sequence[Measurement]) -> StepModel:
    """Fit the parameters to all that a job has measured, by bounded truncated Newton steps."""
    return _fit(tuple((one.nodes, one.gpus, one.each, one.step, one.sync) for one in measured))


@lru_cache(maxsize=4096)
def _fit(measured: tuple[tuple[float, ...], ...]) -> StepModel:
    """The same from columns of ``Samples``: jobs of one kind often measure the same."""
    from scipy.optimize import minimize  # scipy takes a while

    samples = Samples(np.array(measured))
    begin, least, most = samples.bounds()
    bounds = list(zip(least.tolist(), most.tolist(), strict=True))
    # The release's L-BFGS-B calls BLAS for seven numbers, whose threads then wait at full speed for more.
    found = minimize(samples.error, begin, jac=True, bounds=bounds, method="TNC").x
    if not samples.several.any():  # several nodes are no better than one
        found[NETWORK] = max(found[NETWORK], 1.1 * found[LOCAL])
        found[NETWORK_EACH] = max(found[NETWORK_EACH], 1.1 * found[LOCAL_EACH])
    return StepModel(tuple(found.tolist()))


def _root_mean_square(errors: Floats) -> tuple[float, Floats]:
    """The root mean square and its slope by each error."""
    root = float(np.sqrt((errors**2).mean()))
    return root, errors / (len(errors) * max(root, 1e-12))
