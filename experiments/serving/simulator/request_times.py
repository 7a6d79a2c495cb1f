"""When each answered request had its tokens, and what may be asked of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.serving.interface import ServingPlan
from experiments.workloads.ragged import Ints
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class RequestTimes:
    """Times of each answered ``request`` (s).

    To the first token, per later token (NaN for one-token answers), to the answer, and that by its tokens.
    """

    request: Ints
    ttft: Floats
    tpot: Floats
    latency: Floats
    normalized: Floats

    @classmethod
    def of(cls, plan: ServingPlan, trace: RequestTrace) -> RequestTimes:
        rows = [(s.request, s.first_token, s.last_token, s.answered) for s in plan.served]
        request, first, last, answered = np.array(rows).reshape(-1, 4).T
        kept = ~np.isnan(answered)
        chosen = request[kept].astype(np.int64)
        return cls._over(chosen, first[kept], last[kept], answered[kept], trace)

    @classmethod
    def of_real_server(cls, trace: RequestTrace) -> RequestTimes | None:
        """Those of a real server, where the trace has them."""
        truth = trace.measured
        if truth is None:
            return None
        return cls._over(np.arange(len(trace)), truth.first_token, truth.last_token, truth.last_token, trace)

    @classmethod
    def _over(
        cls, request: Ints, first: Floats, last: Floats, answered: Floats, trace: RequestTrace
    ) -> RequestTimes:
        arrival, output = trace.arrival[request], trace.output[request]
        tpot = np.full(len(request), np.nan)
        long = output > 1
        tpot[long] = (last - first)[long] / (output[long] - 1)
        latency = answered - arrival
        return cls(request, first - arrival, tpot, latency, latency / output)


@dataclass(frozen=True)
class LatencyObjective:
    """Largest time to the first token and per later token (s) that a request may take; ``None``: no limit.

    ``normalized`` is that of its whole latency per token of the answer. A trace may tell for each request the
    time to its answer besides (``slo``).
    """

    ttft: float | None = None
    tpot: float | None = None
    normalized: float | None = None

    def is_told(self, trace: RequestTrace) -> bool:
        return self != LatencyObjective() or trace.slo is not None

    def met(self, times: RequestTimes, trace: RequestTrace) -> int:
        good = np.ones(len(times.ttft), bool)
        if trace.slo is not None:
            good &= ~(times.latency > trace.slo[times.request])
        if self.ttft is not None:
            good &= times.ttft <= self.ttft
        if self.tpot is not None:
            good &= ~(times.tpot > self.tpot)
        if self.normalized is not None:
            good &= times.normalized <= self.normalized
        return int(good.sum())

    def scales(self, times: RequestTimes, trace: RequestTrace) -> Floats:
        """By what all objectives would have to be multiplied for each answered request to keep them."""
        asked = [(times.ttft, self.ttft), (times.tpot, self.tpot), (times.normalized, self.normalized)]
        parts = [took / limit for took, limit in asked if limit is not None]
        if trace.slo is not None:
            parts.append(times.latency / trace.slo[times.request])
        scales: Floats = np.nan_to_num(np.fmax.reduce(parts))
        return scales


#: Nothing is asked.
NO_OBJECTIVE = LatencyObjective()
