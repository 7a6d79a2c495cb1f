"""The jobs as a policy sees them: columns that it did not declare are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.core.policy import HiddenColumn
from experiments.workloads.jobs import JobTrace

#: Columns of a trace that a policy must declare in ``sees``; submit time and GPUs wanted are always visible.
HIDEABLE = frozenset({"service", "deadline", "model", "tenant"})


class VisibleJobs:
    """The columns of a trace that a policy may see, as plain lists indexed by job number.

    Jobs are numbered in the order of the trace. ``submit`` (s) and ``gpus`` (wanted) are always there;
    ``sees`` adds ``service`` in s on those GPUs, absolute ``deadline`` in s (NaN: none), ``model``,
    ``tenant``.
    """

    def __init__(self, trace: JobTrace, sees: frozenset[str]) -> None:
        if not sees <= HIDEABLE:
            raise ValueError(f"unknown columns in sees: {', '.join(sorted(sees - HIDEABLE))}")
        self.submit: list[float] = trace.submit.tolist()
        self.gpus: list[int] = trace.gpus.tolist()
        self._shown: dict[str, Sequence[Any]] = {}
        for name in sees:
            column = getattr(trace, name)
            self._shown[name] = column if isinstance(column, tuple) else column.tolist()

    def __len__(self) -> int:
        return len(self.submit)

    def _column(self, name: str) -> Sequence[Any]:
        if name not in self._shown:
            raise HiddenColumn(f"{name} is hidden: the policy does not declare it in sees")
        return self._shown[name]

    @property
    def service(self) -> Sequence[float]:
        return self._column("service")

    @property
    def deadline(self) -> Sequence[float]:
        return self._column("deadline")

    @property
    def model(self) -> Sequence[str]:
        return self._column("model")

    @property
    def tenant(self) -> Sequence[str]:
        return self._column("tenant")
