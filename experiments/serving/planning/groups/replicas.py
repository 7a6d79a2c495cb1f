"""Which models get another replica, and on which group: AlpaServe's two searches (section 4.2, algorithm 1).

A replica needs, on every device of its group, the bytes of the model's largest stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.serving.interface.deployment import Deployment, Group
from experiments.serving.planning.groups.evaluator import Evaluation, Evaluator

BEAM = 3
#: What a second of mean latency and a replica count in the score, against all of attainment.
LATENCY_WEIGHT, REPLICA_WEIGHT = 1e-4, 1e-6


@dataclass(frozen=True)
class Replicas:
    """Groups with the models that a search gave them, and what they attain on the sample."""

    groups: tuple[Group, ...]
    evaluation: Evaluation

    @property
    def score(self) -> float:
        count = sum(len(group.models) for group in self.groups)
        found = self.evaluation
        return found.attainment - found.latency * LATENCY_WEIGHT + count * REPLICA_WEIGHT


class ReplicaSearch:
    """Searches over the replicas of one deployment on one sample."""

    def __init__(
        self, deployment: Deployment, evaluator: Evaluator, among: Sequence[int] | None = None
    ) -> None:
        self.deployment, self.evaluator = deployment, evaluator
        self.models = tuple(range(len(deployment.models)) if among is None else among)

    def among(self, models: Sequence[int]) -> ReplicaSearch:
        """Return the search that places these models alone, and looks at their requests alone."""
        return ReplicaSearch(self.deployment, self.evaluator.among(models), models)

    def fast_greedy(self, groups: Sequence[Group]) -> Replicas:
        """Return groups filled one replica after another until nothing fits.

        The model with the most unserved requests gets one on the least loaded group that takes it; models
        that fit nowhere are passed over; of models that are served alike, the one with the highest load for
        each of its replicas comes first. The best of all that it came past is returned: a further replica
        can do harm, where it puts slow requests before others.
        """
        found = best = self._evaluated(groups)
        while (grown := next(self._most_wanted(found), None)) is not None:
            found = self._evaluated(grown)
            if found.score > best.score:
                best = found
        return best

    def beam(self, groups: Sequence[Group]) -> Replicas:
        """Return the best of a search that keeps ``BEAM`` placements and grows each by every replica."""
        best = self._evaluated(groups)
        kept, seen = [best], set[tuple[tuple[int, int, tuple[int, ...]], ...]]()
        while kept:
            grown = []
            for state in kept:
                for model in self.models:
                    for place in (p for p, group in enumerate(state.groups) if self.fits(group, model)):
                        candidate = with_model(state.groups, place, model)
                        if (identity := self._identity(candidate)) not in seen:
                            seen.add(identity)
                            grown.append(self._evaluated(candidate))
            kept = sorted(grown, key=lambda state: -state.score)[:BEAM]
            best = max([best, *kept], key=lambda state: state.score)
        return best

    def _evaluated(self, groups: Sequence[Group]) -> Replicas:
        return Replicas(tuple(groups), self.evaluator.evaluate(groups))

    def _most_wanted(self, found: Replicas) -> Iterator[tuple[Group, ...]]:
        missed, load, models = found.evaluation.missed, found.evaluation.load, self.deployment.models
        replicas = {model: 1 + sum(model in group.models for group in found.groups) for model in self.models}
        order = sorted(
            self.models, key=lambda model: (-missed[model], -models[model].rate / replicas[model], model)
        )
        for model in order:
            places = [place for place, group in enumerate(found.groups) if self.fits(group, model)]
            if places:
                yield with_model(found.groups, min(places, key=lambda place: (load[place], place)), model)

    def fits(self, group: Group, model: int) -> bool:
        """Return whether the group lacks the model, can divide it so, and has the bytes for it."""
        models = self.deployment.models
        if model in group.models or not models[model].cost.divides(group.pipeline, group.tensor):
            return False
        used = sum(group.bytes_of(models[other]) for other in group.models)
        return used + group.bytes_of(models[model]) <= self.deployment.cluster.memory

    def _identity(self, groups: Sequence[Group]) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """A placement up to the names of its groups."""
        return tuple(sorted((group.pipeline, group.tensor, tuple(sorted(group.models))) for group in groups))


def with_model(groups: Sequence[Group], place: int, model: int) -> tuple[Group, ...]:
    """Return ``groups`` with one more model on one of them."""
    grown = replace(groups[place], models=(*groups[place].models, model))
    return (*groups[:place], grown, *groups[place + 1 :])


def list_unplaced(deployment: Deployment, groups: Sequence[Group]) -> dict[int, str]:
    """Return the models that no group has, each with the reason."""
    hosted = {model for group in groups for model in group.models}
    found = {}
    for place, model in enumerate(deployment.models):
        if place not in hosted:
            sizes = [
                group.bytes_of(model) for group in groups if model.cost.divides(group.pipeline, group.tensor)
            ]
            is_large = not sizes or min(sizes) > deployment.cluster.memory
            found[place] = (
                f"its {model.bytes:g} bytes are larger than a group's devices"
                if is_large
                else "another replica of others serves more requests"
            )
    return found
