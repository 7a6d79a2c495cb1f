"""The attainment of a placement on a sample of requests: what the simulator gives, without its records.

Placement searches ask it thousands of times, so it is one loop over requests that are sorted by arrival.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.serving.interface.deployment import Deployment, Group
from experiments.serving.planning.groups.shortest_queue import ROUNDING
from experiments.workloads.scenario import ScenarioRequests


@dataclass(frozen=True)
class Evaluation:
    """What a placement attains: ``attainment`` of all requests, their mean seconds, and who went without.

    ``missed``  requests of each model that were rejected or late.
    ``load``    seconds that the busiest stage of each group works.
    """

    attainment: float
    latency: float
    missed: tuple[int, ...]
    load: tuple[float, ...]


class Evaluator:
    """Dispatch to the shortest queue, over one sample.

    Requests that answers ask are left out: when they come depends on the placement.
    """

    def __init__(
        self,
        deployment: Deployment,
        sample: ScenarioRequests,
        overhead: float = 0.0,
        stage_overhead: float = 0.0,
    ) -> None:
        self.deployment, self.overhead, self.stage_overhead = deployment, overhead, stage_overhead
        models = deployment.models
        rows = zip(sample.arrival.tolist(), sample.model.tolist(), sample.parent.tolist(), strict=True)
        self.requests = sorted(
            (arrival + models[m].preprocess, m, arrival + models[m].slo - models[m].postprocess + ROUNDING)
            for arrival, m, parent in rows
            if parent < 0
        )
        self.memory: dict[tuple[int, int, int], tuple[float, ...]] = {}

    def among(self, models: Sequence[int]) -> Evaluator:
        """Return the evaluator that looks at the requests of these models alone."""
        found = copy.copy(self)
        found.requests = [row for row in self.requests if row[1] in models]
        return found

    def stages(self, model: int, group: Group) -> tuple[float, ...]:
        """Return the seconds of each stage with what the policy allows for between them."""
        key = (model, group.pipeline, group.tensor)
        if key not in self.memory:
            longer = 1 + self.stage_overhead * group.pipeline
            times = group.stage_times(self.deployment.models[model])
            self.memory[key] = tuple(seconds * longer for seconds in times)
        return self.memory[key]

    def evaluate(self, groups: Sequence[Group]) -> Evaluation:
        """Return what ``groups`` attain with the models that they have."""
        hosts: list[list[tuple[list[float], tuple[float, ...], int]]] = [[] for _ in self.deployment.models]
        clocks = [[0.0] * group.pipeline for group in groups]
        for place, group in enumerate(groups):
            for model in group.models:
                hosts[model].append((clocks[place], self.stages(model, group), place))
        missed, load, total = [0] * len(hosts), [0.0] * len(groups), 0.0
        for ready, model, due in self.requests:
            end = self._serve(hosts[model], ready, due, load)
            if end is None:
                missed[model] += 1
            else:
                total += end - ready
        asked = len(self.requests)
        met = asked - sum(missed)
        share, mean = (met / asked, total / met if met else 0.0) if asked else (1.0, 0.0)
        return Evaluation(share, mean, tuple(missed), tuple(load))

    def _serve(
        self,
        hosts: Sequence[tuple[list[float], tuple[float, ...], int]],
        ready: float,
        due: float,
        load: list[float],
    ) -> float | None:
        """When the request ends, its stages given to the shortest queue; ``None``: rejected."""
        if not hosts:
            return None
        clock, stages, place = hosts[0] if len(hosts) == 1 else min(hosts, key=_last_free)
        time, ends = ready, []
        for free, seconds in zip(clock, stages, strict=True):
            time = (free if free > time else time) + seconds
            ends.append(time)
        if time + self.overhead > due:
            return None
        clock[:] = ends
        load[place] += max(stages)
        return time


def _last_free(host: tuple[list[float], tuple[float, ...], int]) -> float:
    return host[0][-1]
