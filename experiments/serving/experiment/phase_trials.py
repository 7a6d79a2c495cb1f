"""What arrangements of instances do with requests drawn from a trace's lengths: what a search asks."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.core.progress import Progress
from experiments.serving.experiment.phase_cluster import PhaseCluster
from experiments.serving.interface.phases import DECODE, PREFILL, Instance, InstanceShape, Trial
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.simulator import LatencyObjective
from experiments.serving.simulator.phases import phase_figures
from experiments.workloads.ragged import Ints
from experiments.workloads.requests import RequestTrace

#: Requests that are drawn for a trial: so many for each instance, within these bounds.
PER_INSTANCE, FEWEST, MOST = 64, 128, 2048
#: Tokens of answers in a trial, on average; of long answers fewer requests are drawn, but so many at least.
MOST_TOKENS, LEAST = 10**6, 8
#: Tokens of a batch of prompts by which the bound of an instance for prompts is known.
BATCH_TOKENS = 8192
#: What is added to a run's seed for the requests of trials.
SAMPLE_SEED = 1_000_003
#: Where no objective is told, trials ask for this many times the time that a mean request needs alone.
SLO_SCALE = 5.0


@dataclass
class ArrangementTrials:
    """Simulations of requests drawn from the trace's lengths, with Poisson arrivals at any rate."""

    cluster: PhaseCluster
    trace: RequestTrace
    seed: int
    progress: Progress
    count: int = 0
    process: int = field(default_factory=os.getpid)

    def try_out(self, instances: Sequence[Instance], rate: float) -> Trial:
        roles = {one.role for one in instances}
        sample = self._sample(self._drawn(len(instances)), rate, roles)
        plan = self.cluster.serve(
            instances, sample, answers_only=roles == {DECODE}, progress=self._sign_of_life
        )
        wanted = self.objective
        objective = LatencyObjective(
            None if roles == {DECODE} else wanted.ttft, None if roles == {PREFILL} else wanted.tpot
        )
        found = phase_figures(plan, sample, objective)
        return Trial(found.get("slo_attainment", 0.0), found.get("latency_mean", float("inf")))

    def _drawn(self, instances: int) -> int:
        """Requests of a trial of so many instances."""
        return max(LEAST, min(self._most_drawn, max(FEWEST, PER_INSTANCE * instances), MOST))

    @functools.cached_property
    def _most_drawn(self) -> int:
        return int(MOST_TOKENS / self.trace.output[self._servable].mean())

    def doubts(self) -> list[str]:
        """What to know of a search whose trials have few requests, since their answers are long."""
        drawn = max(LEAST, self._most_drawn)
        if not self.count or drawn >= FEWEST:
            return []
        mean = self.trace.output[self._servable].mean()
        return [
            f"each simulation of the search has {drawn} requests, whose answers have {mean:,.0f} tokens on "
            f"average: what it found is less certain than by {FEWEST}"
        ]

    def note(self, simulations: int) -> None:
        """Report so many more, or a sign of life; a search does not know how many it will ask for."""
        self.count += simulations
        self.progress(0.0, f"{self.count} simulations of arrangements")

    def _sign_of_life(self, fraction: float, step: str) -> None:
        """A forked search has none: the process that waits for it reports."""
        if os.getpid() == self.process:
            self.note(0)

    def _sample(self, count: int, rate: float, roles: set[str]) -> RequestTrace:
        rng = np.random.default_rng(self.seed + SAMPLE_SEED)
        rows = self._servable[rng.integers(len(self._servable), size=count)]
        arrival = np.cumsum(rng.exponential(1.0, count)) / rate
        output = self.trace.output[rows]
        if roles == {PREFILL}:
            output = np.ones_like(output)
        return RequestTrace("trial", arrival - arrival[0], self.trace.prompt[rows], output, ("",) * count)

    @functools.cached_property
    def _servable(self) -> Ints:
        """Requests within the model's context: others are refused whatever the instances."""
        found = np.flatnonzero(self.trace.prompt <= self.cluster.model.context)
        return found if len(found) else np.arange(len(self.trace))

    def carried(self, instances: Sequence[Instance]) -> float:
        """The slower phase's requests a second, with every batch full of mean requests."""
        prompt = int(self.trace.prompt[self._servable].mean())
        output = float(self.trace.output[self._servable].mean())
        phases: dict[str, float] = {}
        for one in instances:
            of_one = (
                self._prompts_of(one, prompt)
                if one.role == PREFILL
                else self._answers_of(one, prompt, output)
            )
            phases[one.role] = phases.get(one.role, 0.0) + of_one
        return min(phases.values())

    def _prompts_of(self, instance: Instance, prompt: int) -> float:
        count = max(1, BATCH_TOKENS // prompt)
        return count / self._seconds(instance.shape, [Entry(place, prompt, 0) for place in range(count)])

    def _answers_of(self, instance: Instance, prompt: int, output: float) -> float:
        policy, shape = self.cluster.policy, instance.shape
        context = prompt + int(output / 2)
        fit = int(self.cluster.engine(shape).blocks * policy.block_size / (prompt + output / 2))
        count = max(1, min(policy.max_batch, fit) // shape.pipeline)
        entries = [Entry(place, 1, context) for place in range(count)]
        return count / self._seconds(shape, entries) / max(1.0, output - 1)

    def _seconds(self, shape: InstanceShape, entries: Sequence[Entry]) -> float:
        return float(self.cluster.engine(shape).price.seconds(StepLoad.of(entries))[0])

    @property
    def objective(self) -> LatencyObjective:
        """What is told, and for the rest a multiple of what a mean request takes alone."""
        policy = self.cluster.policy
        return LatencyObjective(policy.slo_ttft or self._alone(1), policy.slo_tpot or self._alone(0))

    def _alone(self, is_prompt: int) -> float:
        """On the least devices that hold the model."""
        mean = int(self.trace.prompt.mean())
        shape = min(self.cluster.shapes(0), key=lambda shape: (shape.devices, shape.pipeline))
        entry = Entry(0, mean, 0) if is_prompt else Entry(0, 1, mean)
        return SLO_SCALE * shape.pipeline * self._seconds(shape, [entry])

    def to_json(self) -> dict[str, Any]:
        if not self.count:
            return {}
        policy, objective = self.cluster.policy, self.objective
        names = {"slo_ttft": policy.slo_ttft, "slo_tpot": policy.slo_tpot}
        assumed = [name for name, value in names.items() if value is None]
        return {
            "simulations": self.count,
            "searched_for": {"slo_ttft": objective.ttft, "slo_tpot": objective.tpot, "assumed": assumed},
        }
