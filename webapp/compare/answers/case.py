"""The runs of one question, sorted by how they ended: what every family's answer is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from experiments.core import registry
from experiments.core.policy import Policy
from webapp.accounts.models import Project
from webapp.compare.comparison import Comparison
from webapp.compare.entries import Entry
from webapp.compare.needs import Need, capacity_of, needs_of
from webapp.runs.models import Run

WAITING = (Run.State.QUEUED, Run.State.RUNNING)


@dataclass(frozen=True)
class Case:
    """``done`` have figures, ``misfits`` do not fit, ``wrong`` ended without an answer.

    ``capacity`` is of the smallest device in bytes, ``needs`` by run of the misfits.
    """

    project: Project
    comparison: Comparison
    done: tuple[Entry, ...]
    misfits: tuple[Entry, ...]
    waiting: tuple[Entry, ...]
    wrong: tuple[Entry, ...]
    capacity: float | None
    needs: Mapping[UUID, Need]

    @property
    def total(self) -> int:
        return len(self.comparison.lines)

    @property
    def fallen(self) -> tuple[Entry, ...]:
        return (*self.misfits, *self.wrong)

    @property
    def workload(self) -> str:
        """What was run, without the ending of its file."""
        return str(self.comparison.entries[0].parameters.get("workload")).removesuffix(".json")

    @property
    def where(self) -> str:
        return self.comparison.entries[0].run.hardware

    @property
    def baseline(self) -> Entry | None:
        """The run of the policy that changes nothing."""
        entries = self.comparison.entries
        return next((one for one in entries if (policy := policy_of(one)) and policy.is_baseline), None)

    def need(self, entry: Entry) -> Need:
        return self.needs.get(entry.run.pk, Need())

    def having(self, *metrics: str) -> list[Entry]:
        """What has an answer with all these figures."""
        return [entry for entry in self.done if set(metrics) <= set(entry.estimates)]

    def ranked(self, metric: str, cost: Callable[[float], float] = float) -> list[Entry]:
        """What reports ``metric``, the lowest ``cost`` of it first."""
        return sorted(self.having(metric), key=lambda entry: cost(value(entry, metric)))


def value(entry: Entry, metric: str) -> float:
    return entry.estimates[metric].value


def policy_of(entry: Entry) -> type[Policy] | None:
    """The policy's class; ``None`` for one that this version no longer has."""
    return registry.family_policies(entry.run.family).get(entry.run.policy)


def case_of(comparison: Comparison, project: Project) -> Case:
    entries = comparison.entries
    done = tuple(entry for entry in entries if entry.estimates)
    silent = [entry for entry in entries if not entry.estimates]
    misfits = tuple(entry for entry in silent if "infeasible" in entry.statuses)
    waiting = tuple(e for e in silent if e not in misfits and any(run.state in WAITING for run in e.runs))
    wrong = tuple(entry for entry in silent if entry not in misfits and entry not in waiting)
    capacity = capacity_of(entries[0]) if entries else None
    return Case(project, comparison, done, misfits, waiting, wrong, capacity, needs_of(misfits, capacity))
