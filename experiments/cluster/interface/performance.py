"""How fast jobs run on what they are given: one question, asked by the simulator and by policies that may."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from experiments.cluster.interface.allocation import Gang


class Rate(NamedTuple):
    """``speed`` in units of work per second, for as long as less than ``until`` of the work is done.

    ``restarting`` is the share of the gang's device time in which devices are made ready for it, ``busy`` the
    share of the rest in which they compute.
    """

    speed: float
    until: float = math.inf
    busy: float = 1.0
    restarting: float = 0.0


class Performance(Protocol):
    """A performance model: seconds, steps or samples of work, and how much of it a gang does in a second.

    ``name`` and ``unit`` are told with results; so is what ``describe`` says (constants, sources, what was
    assumed).
    """

    name: str
    unit: str

    def work(self, job: int) -> float:
        """Return the whole work of ``job``."""
        ...

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        """Return how fast ``job`` runs on ``gang`` while ``neighbors`` have parts of the same devices.

        ``done`` is how much of its work it has done. ``BadInput`` names job and model where the model has no
        entry for them; never a silent speed of 1.
        """
        ...

    def largest(self, job: int) -> int:
        """Return the most devices on which ``job`` can run."""
        ...

    def describe(self) -> Mapping[str, Any]: ...


@runtime_checkable
class MeasuredPairs(Protocol):
    """A performance model by measurements, which may lack those of jobs that share devices."""

    def may_share(self, gang: Gang, others: Sequence[Gang]) -> bool:
        """Return whether ``gang`` is known to run, and how fast, while ``others`` have its devices too."""
        ...
