"""Seconds of a step by workers and parameter servers, from short trial runs (section 3.2).

Synchronous: ``t0 M / w + t1 + t2 w / p + t3 w + t4 p`` for a batch ``M`` over ``w`` workers and ``p``
servers; asynchronous: ``t0 + t1 w / p + t2 w + t3 p`` for each worker's own steps. Coefficients are not
negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.workloads.step import Floats

#: Workers and servers of a trial, and the steps per second that it measured.
Trial = tuple[int, int, float]


@dataclass(frozen=True)
class SpeedCurve:
    """``coefficients`` of a job with a global ``batch``."""

    batch: float
    coefficients: tuple[float, ...]
    synchronous: bool = True

    def speed(self, workers: int, servers: int) -> float:
        """Steps per second."""
        seconds = float(_terms(self.batch, workers, servers, self.synchronous) @ np.array(self.coefficients))
        return (1 if self.synchronous else workers) / seconds


def fit_speeds(trials: Sequence[Trial], batch: float, *, synchronous: bool = True) -> SpeedCurve:
    """Fit the seconds of steps, each trial's error over its own seconds."""
    from scipy.optimize import nnls  # scipy takes a while

    rows = [_terms(batch, workers, servers, synchronous) for workers, servers, _ in trials]
    seconds = np.array([(1 if synchronous else workers) / speed for workers, _, speed in trials])
    columns = np.array(rows) / seconds[:, None]
    scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    found, _ = nnls(columns / scale, np.ones(len(trials)))
    return SpeedCurve(batch, tuple((found / scale).tolist()), synchronous)


def _terms(batch: float, workers: int, servers: int, synchronous: bool) -> Floats:
    first = [batch / workers] if synchronous else []
    return np.array([*first, 1.0, workers / servers, workers, servers])
