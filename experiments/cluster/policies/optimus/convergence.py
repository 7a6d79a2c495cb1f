"""How many steps a job has left, from its losses so far (section 3.1).

``l(k) = 1 / (b0 k + b1) + b2`` after ``k`` steps. For a floor ``b2`` the rest is linear in ``1 / (l - b2)``
and is fitted by non-negative least squares; the floor with the least error is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.workloads.step import Floats

#: Fewer points than this tell no curve.
FEWEST = 4
#: A loss so many times as far from its neighbors' median as they are from each other is an outlier.
OUTLIER = 5.0


@dataclass(frozen=True)
class LossCurve:
    """The coefficients; ``b0`` is positive for a loss that still falls."""

    b0: float
    b1: float
    b2: float

    def loss(self, steps: Floats | float) -> Floats:
        return np.asarray(1 / (self.b0 * np.asarray(steps) + self.b1) + self.b2)

    def steps_until(self, threshold: float, epoch: float) -> float:
        """Steps after which the loss falls by less than ``threshold`` in an epoch of so many steps.

        ``1 / x - 1 / (x + d) = threshold`` with ``x = b0 k + b1`` and ``d = b0 epoch``.
        """
        if self.b0 <= 0:
            return 0.0
        grows = self.b0 * epoch
        x = (np.sqrt(grows**2 + 4 * grows / threshold) - grows) / 2
        return max(0.0, float((x - self.b1) / self.b0))


def fit_losses(steps: Sequence[float] | Floats, losses: Sequence[float] | Floats) -> LossCurve | None:
    """Fit the curve to losses divided by the largest of them; ``None`` where there are too few."""
    from scipy.optimize import minimize_scalar  # scipy takes a while

    k, loss = np.asarray(steps, np.float64), np.asarray(losses, np.float64)
    kept = ~_outliers(loss)
    k, loss = k[kept], loss[kept]
    if len(k) < FEWEST or np.ptp(loss) <= 0:
        return None
    scale = float(np.abs(loss).max())
    loss = loss / scale
    span, least = float(np.ptp(loss)), float(loss.min())

    def error(gap: float) -> float:
        floor = least - span * float(np.exp(gap))
        b0, b1 = _line(k, loss, floor)
        return float(((1 / (b0 * k + b1) + floor - loss) ** 2).sum())

    gaps = np.linspace(-12, 3, 61)
    best = gaps[int(np.argmin([error(gap) for gap in gaps]))]
    found = minimize_scalar(error, bounds=(best - 0.5, best + 0.5), method="bounded")
    floor = least - span * float(np.exp(found.x))
    b0, b1 = _line(k, loss, floor)
    return LossCurve(b0 / scale, b1 / scale, floor * scale)


def _line(k: Floats, loss: Floats, floor: float) -> tuple[float, float]:
    """``b0`` and ``b1`` above a floor, each point weighed so that errors are those of losses."""
    from scipy.optimize import nnls  # scipy takes a while

    above = loss - floor
    weight = above**2
    columns = np.stack((k / k[-1], np.ones_like(k)), axis=1)
    found, _ = nnls(columns * weight[:, None], weight / above)
    return float(found[0] / k[-1]), max(float(found[1]), 1e-9)


def _outliers(loss: Floats) -> npt.NDArray[np.bool_]:
    """Losses far from the median of the five around them."""
    if len(loss) < 5:
        return np.zeros(len(loss), np.bool_)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(loss, 2, mode="edge"), 5)
    median = np.median(around, axis=1)
    spread = np.median(np.abs(around - median[:, None]), axis=1)
    limits = OUTLIER * np.maximum(spread, 1e-3 * np.abs(median) + 1e-12)
    return np.asarray(np.abs(loss - median) > limits)
