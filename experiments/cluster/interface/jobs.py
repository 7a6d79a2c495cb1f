"""The jobs as a policy sees them: columns that it did not declare are not there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.core.policy import HiddenColumn
from experiments.workloads.jobs import REQUESTS, TRAITS, JobTrace

#: What a policy must declare in ``sees``: columns of a trace, and what the performance model knows of jobs.
HIDEABLE = frozenset({"service", "deadline", "model", "tenant", "throughput", "gradients"}) | (
    TRAITS.keys() - REQUESTS
)


class Demand(NamedTuple):
    """What a job asked for when it was submitted.

    ``gpus`` devices at ``share`` of each (1: whole), of one of ``types`` (none: any), ``cpus`` processors
    and ``memory`` bytes of host memory in all.
    """

    gpus: int
    share: float = 1.0
    cpus: float = 0.0
    memory: float = 0.0
    types: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it takes any devices, and nothing next to them."""
        return not (self.types or self.cpus or self.memory)

    def of(self, gpus: int) -> Demand:
        """Return what so many of its devices ask for: processors and memory in proportion."""
        part = gpus / self.gpus
        return self._replace(gpus=gpus, cpus=self.cpus * part, memory=self.memory * part)


class VisibleJobs:
    """The columns of a trace that a policy may see, as plain lists indexed by job number.

    Jobs are numbered in the order of the trace. ``submit`` (s), ``gpus`` (wanted) and the rest of what a job
    asks for are always there; ``sees`` adds ``service`` in s on those GPUs, absolute ``deadline`` in s (NaN:
    none), ``model``, ``tenant`` and, by ``column``, what else the trace tells (``workloads.jobs.TRAITS``).
    """

    def __init__(self, trace: JobTrace, sees: frozenset[str]) -> None:
        if not sees <= HIDEABLE:
            raise ValueError(f"unknown columns in sees: {', '.join(sorted(sees - HIDEABLE))}")
        self.submit: list[float] = trace.submit.tolist()
        self.gpus: list[int] = trace.gpus.tolist()
        self._shown: dict[str, Sequence[Any]] = {}
        for name in (sees & {"service", "deadline", "model", "tenant"}) | (
            (sees | REQUESTS) & trace.traits.keys()
        ):
            column = trace.column(name)
            self._shown[name] = column if isinstance(column, tuple) else column.tolist()
        self.is_plain = not any(name in trace.traits for name in REQUESTS)

    def __len__(self) -> int:
        return len(self.submit)

    def demand(self, job: int) -> Demand:
        """What ``job`` asked for."""
        if self.is_plain:
            return Demand(self.gpus[job])
        return Demand(
            self.gpus[job],
            self._asked("gpu_share", job, 1.0),
            self._asked("cpu", job, 0.0),
            self._asked("memory", job, 0.0),
            tuple(filter(None, self._asked("gpu_type", job, "").split("|"))),
        )

    def _asked(self, name: str, job: int, usual: Any) -> Any:
        """A missing number is nothing asked for."""
        value = self._shown[name][job] if name in self._shown else usual
        return usual if isinstance(value, float) and math.isnan(value) else value

    def tells(self, name: str) -> bool:
        """Whether the trace has a column that the policy may see."""
        return name in self._shown

    def column(self, name: str) -> Sequence[Any]:
        """A column by name; ``HiddenColumn`` where the policy does not declare it."""
        if name not in self._shown:
            raise HiddenColumn(f"{name} is hidden: the policy does not declare it in sees")
        return self._shown[name]

    def has(self, name: str) -> bool:
        """Whether the policy sees a column and the trace has it."""
        return name in self._shown

    @property
    def service(self) -> Sequence[float]:
        return self.column("service")

    @property
    def deadline(self) -> Sequence[float]:
        return self.column("deadline")

    @property
    def model(self) -> Sequence[str]:
        return self.column("model")

    @property
    def tenant(self) -> Sequence[str]:
        return self.column("tenant")
