"""JobTrace: jobs submitted to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: What traces tell of jobs beyond what every trace has, and what an entry says.
TRAITS: Mapping[str, str] = MappingProxyType(
    {
        "batch": "samples of a step over all devices (0: not told)",
        "iterations": "steps asked for (NaN: not told)",
        "epochs": "epochs asked for (NaN: not told)",
        "user": "who submitted it",
        "group": "jobs of one script, or of one search over hyper-parameters",
        "cpu": "processors wanted, of all its devices together (NaN: none told)",
        "memory": "bytes of host memory wanted, of all its devices together (NaN: none told)",
        "gpu_share": "share of each of its devices that it wants (1: whole)",
        "gpu_type": "types of devices that will do, with | between them (empty: any)",
        "suggested_nodes": "names of nodes that it may go to, with | between them (empty: any)",
        "priority": "the larger, the sooner",
        "class": "guaranteed or opportunistic",
        "utilization": "share of a whole device's computing that it uses when it runs alone",
        "weight": "of its part in a fair division",
        "losses": "training loss by step, as pairs",
        "name": "what its user called it",
    }
)
#: Those that a job asks for when it is submitted, as it does for GPUs.
REQUESTS = frozenset({"gpu_share", "cpu", "memory", "gpu_type"})
GUARANTEED, OPPORTUNISTIC = "guaranteed", "opportunistic"


@dataclass(frozen=True)
class JobTrace:
    """Columns over jobs, sorted by ``(submit, job id)``: the order of rows in a file means nothing.

    ``submit`` seconds, ``gpus`` wanted, ``service`` seconds on those GPUs without waiting, ``deadline``
    absolute seconds (NaN: none), ``model`` and ``tenant`` names ("" when the file has none). ``traits`` are
    the columns of ``TRAITS`` that the trace has. ``original`` keeps the file's own columns in the same order.
    ``profiles`` is how fast its models run on what, where a side file says so (``workloads.job_profiles``).
    ``window`` names the jobs that count, from one place in the order of submission to before another.
    """

    name: str
    job: tuple[str, ...]
    submit: Floats
    gpus: Ints
    service: Floats
    deadline: Floats
    model: tuple[str, ...]
    tenant: tuple[str, ...]
    traits: Mapping[str, Any] = field(default_factory=dict)
    original: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    profiles: Any = None
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        columns = (self.submit, self.gpus, self.service, self.deadline, self.model, self.tenant)
        if any(len(column) != len(self.job) for column in (*columns, *self.traits.values())):
            raise BadInput("columns differ in length", self.name)
        if unknown := self.traits.keys() - TRAITS.keys():
            raise BadInput(f"unknown traits {', '.join(sorted(unknown))}", self.name, ", ".join(TRAITS))
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
        original, traits = (
            {name: _pick(cells, order) for name, cells in kept.pop(table, {}).items()}
            for table in ("original", "traits")
        )
        return cls(
            job=_pick(job, order), submit=submit[order], original=original, traits=traits, **sorted_, **kept
        )

    def has(self, name: str) -> bool:
        """Whether any job has something in a column."""
        column = self.traits.get(name, ()) if name in TRAITS else getattr(self, name)
        if isinstance(column, np.ndarray):
            return bool((~np.isnan(column.astype(np.float64))).any())
        return any(column)

    def told(self) -> dict[str, Any]:
        """What schedulers may find in it: columns, jobs of several GPUs and of none, and which speeds."""
        names = [name for name in ("deadline", "model", "tenant", *TRAITS) if self.has(name)]
        several, none = int((self.gpus > 1).sum()), int((self.gpus == 0).sum())
        counts = {"several_gpus": several, "without_gpus": none}
        return {"columns": names, **counts, "speeds": getattr(self.profiles, "speeds", False)}

    def column(self, name: str) -> Any:
        """A column by name, of ``traits`` too."""
        return self.traits[name] if name in TRAITS else getattr(self, name)

    def first(self, count: int) -> JobTrace:
        """The first ``count`` jobs."""
        return self.rows(slice(count))

    def timed(self) -> JobTrace:
        """The jobs whose duration is known (NaN: it is not)."""
        known = np.flatnonzero(~np.isnan(self.service))
        if len(known) == len(self):
            return self
        columns = {name: _pick(getattr(self, name), known) for name in _COLUMNS}
        traits, original = (
            {name: _pick(cells, known) for name, cells in table.items()}
            for table in (self.traits, self.original)
        )
        return replace(self, **columns, traits=traits, original=original)

    def rows(self, places: slice) -> JobTrace:
        """The jobs at ``places`` in the order of submission."""
        columns = {name: getattr(self, name)[places] for name in _COLUMNS}
        traits, original = (
            {name: cells[places] for name, cells in table.items()} for table in (self.traits, self.original)
        )
        return replace(self, **columns, traits=traits, original=original)


_COLUMNS = ("job", "submit", "gpus", "service", "deadline", "model", "tenant")
_WHOLE = ("name", "traits", "original", "facts", "profiles", "window")


def _rank(job: Sequence[str]) -> Ints:
    """The place of each id in their order.

    By value when all are whole numbers, or end in ``-`` and one of their own; else as text.
    """
    ends = [name.rpartition("-")[2] for name in job]
    numeric = all(end.isascii() and end.isdigit() for end in ends) and len(set(ends)) == len(ends)
    keys: list[Any] = [int(end) for end in ends] if numeric else list(job)
    rank = np.empty(len(job), np.int64)
    rank[sorted(range(len(job)), key=keys.__getitem__)] = np.arange(len(job))
    return rank


def _pick(column: Any, order: Ints) -> Any:
    return column[order] if isinstance(column, np.ndarray) else tuple(column[row] for row in order.tolist())
