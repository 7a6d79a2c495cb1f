"""Scenario: models that are served together, each with its load, its objective and what its passes cost."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.workloads.arrival_processes import draw_arrivals
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Requests with an objective; work that takes what is left; training, which is stopped for requests.
REAL_TIME, BEST_EFFORT, TRAINING = "real_time", "best_effort", "training"
CLASSES = (REAL_TIME, BEST_EFFORT, TRAINING)
#: A client that asks again as soon as it is answered: its first request is at 0.
CLOSED = "closed"


@dataclass(frozen=True)
class FixedCost:
    """One request takes ``seconds``; requests in a batch take them one after another."""

    seconds: float


@dataclass(frozen=True)
class BatchProfile:
    """Seconds of a pass by its number of requests: a column ascending, and what was measured at each.

    ``memory`` are the bytes of model and pass together, empty where nobody measured them.
    """

    batch: tuple[int, ...]
    latency: tuple[float, ...]
    memory: tuple[float, ...] = ()

    def at(self, batch: int) -> float:
        """Return the seconds of a pass: linear between measured batches, and on from the outermost two.

        Never below the least that was measured, in proportion to the batch below the first.
        """
        place = bisect_left(self.batch, batch)
        if place < len(self.batch) and self.batch[place] == batch:
            return self.latency[place]
        if len(self.batch) == 1 or place == 0:
            return self.latency[0] * max(1.0, batch / self.batch[0])
        low = min(place, len(self.batch) - 1) - 1
        share = (batch - self.batch[low]) / (self.batch[low + 1] - self.batch[low])
        found = self.latency[low] + share * (self.latency[low + 1] - self.latency[low])
        return max(found, min(self.latency))

    @property
    def largest(self) -> int:
        """The largest batch that was measured."""
        return self.batch[-1]


@dataclass(frozen=True)
class LayerCosts:
    """Seconds and bytes of weights of each layer in the order of a pass, for one request.

    ``blocks`` number the model's own parts, one after another, to which the layers belong; empty: not told.
    """

    seconds: tuple[float, ...]
    bytes: tuple[float, ...]
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelFile:
    """The file of a model's kernels as REEF has it, and its ``<stem>.profile.json`` if there is one."""

    name: str
    data: bytes = field(repr=False)
    profile: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PublishedSizes:
    """A model known by its sizes, at so many tokens a request: what it costs follows from the device."""

    model: str
    sequence: int


Cost = FixedCost | BatchProfile | LayerCosts | KernelFile | PublishedSizes


@dataclass(frozen=True)
class ScenarioModel:
    """A model and its load.

    ``slo``            seconds within which a request is to be answered; ``None``: none, nothing is rejected.
    ``rate``           mean requests a second; 0 of work that is no ``real_time``: without a pause.
    ``arrivals``       its process, or ``CLOSED``, and ``cv`` the variation of its gaps where it has one.
    ``times``          arrivals as they were recorded, instead of a process (s, ascending).
    ``service_class``  one of ``CLASSES``.
    ``bytes``          of weights on a device; 0: not known, nothing to hold.
    ``peaks``          bytes that its passes work with besides, one after another; the last holds on.
    ``preprocess``     seconds on the processor before a pass of each request, ``postprocess`` after it.
    ``after``          the model whose answers ask this one (a stage of a query), ``share`` times each.
    """

    name: str
    cost: Cost
    slo: float | None = None
    rate: float = 0.0
    arrivals: str = "poisson"
    cv: float = 1.0
    times: tuple[float, ...] | None = None
    service_class: str = REAL_TIME
    bytes: float = 0.0
    peaks: tuple[float, ...] = ()
    preprocess: float = 0.0
    postprocess: float = 0.0
    after: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class ScenarioRequests:
    """Requests of a scenario: those that arrive, by time, then those that answers ask, parents first.

    ``arrival``  s; NaN for a request that comes when its parent is answered.
    ``model``    its place in the scenario.
    ``parent``   the request whose answer asks it; -1 for what arrives by itself.
    """

    arrival: Floats
    model: Ints
    parent: Ints

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True)
class Scenario:
    """Models served together for ``duration`` seconds; ``most_requests``: the first so many alone."""

    name: str
    duration: float
    models: tuple[ScenarioModel, ...]
    most_requests: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.models)

    @functools.cached_property
    def places(self) -> Mapping[str, int]:
        """Return the place of each model by its name."""
        return {model.name: place for place, model in enumerate(self.models)}

    def rate(self, name: str) -> float:
        """Return the mean requests a second of the model, those that answers of others ask among them."""
        model = self.models[self.places[name]]
        if model.after:
            return model.share * self.rate(model.after)
        return model.rate if model.times is None else len(model.times) / self.duration

    def draw(self, seed: int) -> ScenarioRequests:
        """Return the requests of ``seed``: equal whatever serves them.

        Each model draws from a generator of its own, so another one more changes none of them.
        """
        rows = [(time, place) for place, times in self._arrivals(seed) for time in times.tolist()]
        rows = sorted(rows)[: self.most_requests]
        arrival = [time for time, _ in rows]
        model = [place for _, place in rows]
        parent = [-1] * len(rows)
        for request, child in self._asked(seed, model):
            arrival.append(np.nan)
            model.append(child)
            parent.append(request)
        return ScenarioRequests(np.array(arrival), np.array(model, np.int64), np.array(parent, np.int64))

    def _arrivals(self, seed: int) -> Iterator[tuple[int, Floats]]:
        for place, model in enumerate(self.models):
            rng = np.random.default_rng([seed, place])
            if model.times is not None:
                times = np.array(model.times)
                yield place, times[times < self.duration]
            elif model.arrivals == CLOSED:
                yield place, np.zeros(1)
            elif not model.after:
                yield place, draw_arrivals(model.arrivals, model.rate, model.cv, self.duration, rng)

    def _asked(self, seed: int, model: list[int]) -> Iterator[tuple[int, int]]:
        """Each request and the model that its answer asks, as often as it does; ``model`` grows meanwhile."""
        rng = np.random.default_rng([seed, len(self.models)])
        children: dict[int, list[int]] = {}
        for place, one in enumerate(self.models):
            if one.after:
                children.setdefault(self.places[one.after], []).append(place)
        request = 0
        while request < len(model):
            for child in children.get(model[request], ()):
                whole, rest = divmod(self.models[child].share, 1)
                for _ in range(int(whole) + int(rng.random() < rest)):
                    yield request, child
            request += 1
