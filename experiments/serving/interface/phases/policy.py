"""The questions asked of a policy that separates prompts from answers: which instances, who goes where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS, Policy
from experiments.serving.interface.phases.arrangement import Instance, InstanceShape
from experiments.serving.interface.phases.view import InstanceView, PhaseView
from experiments.serving.interface.policy import (
    ONE_MODEL,
    cut_prompts,
    delay_objective,
    tail_search,
    tpot_objective,
    ttft_objective,
)


class Trial(NamedTuple):
    """What became of a sample of the load: the share within the objective, and the mean latency (s)."""

    attainment: float
    latency: float


@dataclass(frozen=True)
class Site:
    """Where instances can be, and how well they would do.

    ``shapes``  those of which each device holds its part of the weights and some KV.
    ``rate``    mean requests a second of the trace.
    ``carried`` bounds the requests a second of instances: their full batches one after another.
    ``try_out`` simulates instances under requests drawn from the trace's lengths that come at a rate; of
                prompts alone where all instances are for prompts, of answers alone likewise.
    ``note``    is told how many of these simulations there were.
    """

    nodes: int
    devices_per_node: int
    shapes: tuple[InstanceShape, ...]
    rate: float
    carried: Callable[[Sequence[Instance]], float]
    try_out: Callable[[Sequence[Instance], float], Trial]
    note: Callable[[int], None] = lambda simulations: None

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node


@dataclass(frozen=True)
class Arrangement:
    """Instances, and what else was decided about them, as JSON for the outcome's plan."""

    instances: tuple[Instance, ...]
    plan: Mapping[str, Any] = field(default_factory=dict)


class PhaseDispatcher(Protocol):
    """Decides during one run."""

    def on_arrival(self, request: int, view: PhaseView) -> int:
        """Return the instance that computes the prompt; it may set ``view.goal`` at once."""
        ...

    def on_prefilled(self, request: int, view: PhaseView) -> int:
        """Return the instance that answers; the same one where nothing is copied."""
        ...

    def fill(self, view: InstanceView) -> bool:
        """Fill the next pass of an instance; ``True``: it would be filled alike until something changes."""
        ...

    def overlaps(self, prompt: int) -> bool:
        """Whether the KV of a prompt is copied layer by layer while it is computed."""
        ...


@dataclass(frozen=True)
class PhasePolicy(Policy):
    """A policy with instances for prompts and others for answers, between which KV is copied."""

    family: ClassVar[str] = "serving"
    mechanism: ClassVar[str] = "prompts apart from answers"
    effort: ClassVar[str] = SECONDS
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("requests",)}

    max_batch: int = knob(256, "sequences at once on an instance", low=1, high=65536)
    block_size: int = knob(16, "tokens in a block", low=1, high=4096, unit="tokens")
    wanted_attainment: float = knob(
        0.9, "share of requests within the objective by which instances are chosen", low=0.01, high=1.0
    )
    find_rate: bool = knob(False, "search the highest rate with that share (max_rate)")
    slo_ttft: float | None = ttft_objective()
    slo_tpot: float | None = tpot_objective()
    slo_tbt_p99: float | None = tail_search()
    slo_delay_p50: float | None = delay_objective()
    truncate: bool = cut_prompts()

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        return ONE_MODEL if "models" in told else ""

    @property
    def arranges_by_rate(self) -> bool:
        """Whether other instances may be chosen at another rate."""
        return False

    def arrange(self, site: Site) -> Arrangement:
        """Return the instances on the devices of ``site``."""
        raise NotImplementedError(type(self).__name__)

    def begin(self, instances: Sequence[Instance]) -> PhaseDispatcher:
        """Return what decides during one run: a fresh object."""
        raise NotImplementedError(type(self).__name__)
