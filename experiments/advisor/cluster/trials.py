"""A plan carried out by ``experiments.run``: its figures can be had again from its spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.advisor.ask import Ask
from experiments.advisor.cluster.candidates import Candidate
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.core.spec import Workload
from experiments.run import run

OK = "ok"
#: Passes over a chunk that all simulations of one answer may have: counted, so that every host answers alike.
MOST_WORK = 800_000


@dataclass(frozen=True)
class PlanTrial:
    """A candidate's run: its spec and figures, or the reason why it has none."""

    candidate: Candidate
    spec: Mapping[str, Any]
    spec_id: str
    status: str
    reason: str | None
    metrics: Mapping[str, Mapping[str, Any]]

    @property
    def fits(self) -> bool:
        return self.status == OK

    def value(self, metric: str) -> float:
        return float(self.metrics[metric]["value"])

    @property
    def seconds(self) -> float:
        return self.value("step_time")

    @property
    def peak(self) -> float:
        """Bytes on the fullest device."""
        return self.value("peak_memory_per_device")

    @property
    def price(self) -> float:
        """Device-seconds of a step."""
        return self.seconds * self.candidate.devices


def simulate_in_turn(
    ask: Ask, workload: Workload, candidates: Sequence[Candidate], progress: Progress
) -> Iterator[PlanTrial]:
    """Yield the candidates' runs, without those for which no work is left.

    One that fits at least is among them, if any does.
    """
    left, fits = MOST_WORK, False
    for number, candidate in enumerate(candidates):
        if candidate.work > left and fits:
            continue
        left -= candidate.work
        share = part(progress, number / len(candidates), (number + 1) / len(candidates))
        share(0.0, f"plan {number + 1} of {len(candidates)} simulated")
        trial = carry_out(ask, workload, candidate, share)
        fits = fits or trial.fits
        yield trial


def carry_out(ask: Ask, workload: Workload, candidate: Candidate, progress: Progress) -> PlanTrial:
    spec = candidate.spec(workload, ask.with_nodes(candidate.nodes))
    try:
        outcome = run(spec, progress)
    except BadInput as error:
        return PlanTrial(candidate, spec.to_json(), spec.spec_id, "rejected", str(error), {})
    return PlanTrial(
        candidate, outcome.spec, outcome.spec_id, outcome.status, outcome.reason, outcome.metrics
    )
