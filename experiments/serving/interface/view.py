"""The serving system at the moment of a decision, as far as a policy may see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.core.policy import HiddenColumn
from experiments.workloads.requests import RequestTrace


@dataclass
class ServingView:
    """Read only. Requests are numbered in the order of arrival.

    ``waiting`` requests were not admitted yet, ``running`` ones were and are not answered; both in the order
    of arrival or admission. ``in_flight`` requests are inside a batch now. ``computed`` tokens have their KV
    in memory, ``generated`` tokens were put out, ``finished`` says that the last one was. ``arrived`` since
    the last question.
    """

    arrival: list[float]
    prompt: list[int]
    computed: list[int]
    generated: list[int]
    finished: list[bool]
    outputs: Sequence[int] | None = None
    now: float = float("-inf")
    waiting: dict[int, None] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    arrived: tuple[int, ...] = ()
    kv_reserved: int = 0
    trace_ended: bool | None = None

    @classmethod
    def of(cls, trace: RequestTrace, sees: frozenset[str]) -> ServingView:
        count = len(trace)
        outputs = trace.output.tolist() if "output" in sees else None
        ended = False if "no_more_arrivals" in sees else None
        times, prompts = trace.arrival.tolist(), trace.prompt.tolist()
        return cls(times, prompts, [0] * count, [0] * count, [False] * count, outputs, trace_ended=ended)

    @property
    def no_more_arrivals(self) -> bool:
        """Whether the trace is over, for a policy that declares ``no_more_arrivals`` in ``sees``."""
        if self.trace_ended is None:
            raise HiddenColumn("no_more_arrivals is hidden: the policy does not declare it in sees")
        return self.trace_ended

    @property
    def output(self) -> Sequence[int]:
        """True output lengths, for a policy that declares ``output`` in ``sees``."""
        if self.outputs is None:
            raise HiddenColumn("output is hidden: the policy does not declare it in sees")
        return self.outputs
