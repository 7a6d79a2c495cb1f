"""JobTrace: jobs submitted to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class JobTrace:
    """Columns over jobs, sorted by ``(submit, job id)``: the order of rows in a file means nothing.

    ``submit`` seconds, ``gpus`` wanted, ``service`` seconds on those GPUs without waiting, ``deadline``
    absolute seconds (NaN: none), ``model`` and ``tenant`` names ("" when the file has none). ``original``
    keeps the file's own columns in the same order.
    """

    name: str
    job: tuple[str, ...]
    submit: Floats
    gpus: Ints
    service: Floats
    deadline: Floats
    model: tuple[str, ...]
    tenant: tuple[str, ...]
    original: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = (self.submit, self.gpus, self.service, self.deadline, self.model, self.tenant)
        if any(len(column) != len(self.job) for column in columns):
            raise BadInput("columns differ in length", self.name)
        if len(set(self.job)) != len(self.job):
            raise BadInput("a job id appears twice", self.name)
        if (np.diff(self.submit) < 0).any():
            raise BadInput("jobs are not sorted by submit time", self.name)

    def __len__(self) -> int:
        return len(self.job)

    @classmethod
    def from_columns(cls, *, job: tuple[str, ...], submit: Floats, **columns: Any) -> JobTrace:
        """A trace from columns in any order.

        It is sorted by submit time, equal times by id (numbers as numbers).
        """
        order = np.lexsort((_rank(job), submit))
        sorted_ = {name: _pick(value, order) for name, value in columns.items() if name not in _WHOLE}
        kept = {name: value for name, value in columns.items() if name in _WHOLE}
        original = {name: _pick(cells, order) for name, cells in kept.pop("original", {}).items()}
        return cls(job=_pick(job, order), submit=submit[order], original=original, **sorted_, **kept)

    def first(self, count: int) -> JobTrace:
        """The first ``count`` jobs."""
        rows = {name: getattr(self, name)[:count] for name in _COLUMNS}
        return replace(self, **rows, original={name: cells[:count] for name, cells in self.original.items()})


_COLUMNS = ("job", "submit", "gpus", "service", "deadline", "model", "tenant")
_WHOLE = ("name", "original", "facts")


def _rank(job: Sequence[str]) -> Ints:
    """The place of each id in their order: by value when all are whole numbers, else as text."""
    numeric = all(name.isascii() and name.isdigit() for name in job)
    keys: list[Any] = [int(name) for name in job] if numeric else list(job)
    rank = np.empty(len(job), np.int64)
    rank[sorted(range(len(job)), key=keys.__getitem__)] = np.arange(len(job))
    return rank


def _pick(column: Any, order: Ints) -> Any:
    return column[order] if isinstance(column, np.ndarray) else tuple(column[row] for row in order.tolist())
