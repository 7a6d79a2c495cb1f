"""What is asked of a memory policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.policy import Policy
from experiments.memory.interface.machine import DeviceView, PlanEstimate
from experiments.memory.interface.plan import MemoryPlan
from experiments.workloads.step import Step


@dataclass(frozen=True)
class MemoryPolicy(Policy):
    """A policy that plans ahead: it sees the whole step and the machine, and returns every move."""

    family: ClassVar[str] = "memory"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("model", "step"),
        "measured": ("model",),
    }
    #: Its plans can run an op whose own tensors exceed the device: by pages, or in micro-batches.
    oversubscribes: ClassVar[bool] = False

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        """Return the moves of one step, the same in every step.

        ``Infeasible`` where no plan of this kind exists.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Resident:
    """A tensor that could leave now.

    - ``bytes``: its size.
    - ``last_use``, ``produced``: when it was last used and produced, in seconds.
    - ``seconds``: what it cost to produce.
    """

    tensor: int
    bytes: int
    last_use: float
    produced: float
    seconds: float


@dataclass(frozen=True)
class Eviction:
    """The decision to send ``tensor`` to ``tier``."""

    tensor: int
    tier: str = "host"


@dataclass(frozen=True)
class ReactiveMemoryPolicy(MemoryPolicy):
    """A policy that decides when memory is short, without looking ahead.

    ``plan`` may still place and prefetch.
    """

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return MemoryPlan(reactive=True)

    def evict(self, needed: int, resident: Sequence[Resident], now: float) -> Sequence[Eviction]:
        """Return which tensors leave so that ``needed`` bytes come free.

        ``resident`` is ordered by tensor id; none of it is in use by the running op.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SharedPlans:
    """Plans, one for each of several devices that do the same step and share a host link.

    ``discipline``: ``fair`` (transfers in flight divide the bandwidth) or ``turns`` (one at a time in each
    direction).
    """

    plans: tuple[MemoryPlan, ...]
    discipline: str = "fair"


@dataclass(frozen=True)
class SharedLinkPolicy(MemoryPolicy):
    """A policy for devices that share a link; the slowest of them gives the time of the step."""

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return self.share(step, device, None).plans[0]

    def share(
        self, step: Step, device: DeviceView, together: Callable[[SharedPlans], Sequence[PlanEstimate]] | None
    ) -> SharedPlans:
        """Return a plan for each device; ``together`` tries plans on devices that share the link."""
        raise NotImplementedError
