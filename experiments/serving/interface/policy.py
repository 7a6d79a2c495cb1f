"""The questions asked of a serving policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from experiments.core.knobs import knob
from experiments.core.policy import Policy
from experiments.serving.interface.batch import Batch, Wait
from experiments.serving.interface.engine import Engine
from experiments.serving.interface.view import ServingView


class Scheduler(Protocol):
    """Asked whenever the engine can take another batch and something happened since."""

    def next_batch(self, view: ServingView) -> Batch | Wait: ...


#: Why policies that serve one model are not offered on a scenario of several.
ONE_MODEL = "serves one model, whose requests tell prompts and outputs"


def ttft_objective() -> Any:
    """The knob of every policy that serves a trace."""
    return knob(None, "objective: time to the first token at most", low=1e-6, high=1e6, unit="s")


def tpot_objective() -> Any:
    return knob(None, "objective: time per later token at most", low=1e-6, high=1e6, unit="s")


def normalized_objective() -> Any:
    """Orca's measure (OSDI'22, section 6.2): the latency of a request over the tokens of its answer."""
    return knob(
        None, "objective: whole latency per token of the answer at most", low=1e-6, high=1e6, unit="s"
    )


def rate_search() -> Any:
    return knob(
        None,
        "search the highest rate at which this share of requests is within its objective (max_rate)",
        low=0.01,
        high=1.0,
    )


def tail_search() -> Any:
    """Sarathi-Serve's measure (OSDI'24, section 5.1), which calls that rate the capacity."""
    return knob(
        None,
        "search the highest rate at which the 99th percentile of the time between tokens is at most this"
        " (max_rate)",
        low=1e-6,
        high=1e6,
        unit="s",
    )


def delay_objective() -> Any:
    return knob(
        None,
        "of slo_tbt_p99: half of the requests are in a pass after this time at most; empty: 2 s",
        low=1e-6,
        high=1e6,
        unit="s",
    )


def cut_prompts() -> Any:
    """The knob of every policy that serves a trace by a model."""
    return knob(False, "cut prompts to the model's context instead of refusing them")


@dataclass(frozen=True)
class ServingPolicy(Policy):
    """A policy that says which requests run in the next pass.

    ``sees`` may name ``output``, the true output lengths, and ``no_more_arrivals``, that the trace is over:
    both are oracles.
    """

    family: ClassVar[str] = "serving"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("requests",),
        "measured": ("requests",),
    }
    sees: ClassVar[frozenset[str]] = frozenset()

    split_cost: float = knob(
        0.0, "per request and layer, for attention run apart", low=0.0, high=1.0, unit="s"
    )
    slo_ttft: float | None = ttft_objective()
    slo_tpot: float | None = tpot_objective()
    slo_normalized: float | None = normalized_objective()
    wanted_attainment: float | None = rate_search()
    slo_tbt_p99: float | None = tail_search()
    slo_delay_p50: float | None = delay_objective()
    truncate: bool = cut_prompts()

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        return ONE_MODEL if "models" in told else ""

    def begin(self, engine: Engine) -> Scheduler:
        """What decides during one run: a fresh object, which may remember what it decided before."""
        raise NotImplementedError(type(self).__name__)

    @property
    def holds_answers(self) -> bool:
        """Return whether a finished request keeps its memory until the policy lets it go.

        Else it leaves at its last token.
        """
        return False

    @property
    def early_answers(self) -> bool:
        """An answer goes out with its last token, even where the request is held longer."""
        return not self.holds_answers

    @property
    def longest_reserved(self) -> int | None:
        """Tokens that a knob reserves for each answer; ``None``: as many as the service's longest has."""
        return None

    def batches_in_flight(self, engine: Engine) -> int:
        """How many batches may be inside the pipeline at once."""
        return 1
