"""The lines of a search: runs of an experiment that differ in nothing but their rate, and what they gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from experiments.core import jsonio
from experiments.core.rate_search import MOST_TRIALS, RateGoal, RateSearch
from webapp.rates.models import RateStudy
from webapp.runs.models import Experiment, Run, RunQuerySet

#: By how much of itself a rate is known in the end.
PRECISION = 0.05


@dataclass(frozen=True)
class RateLine:
    """``search`` was told what the ``runs`` gave; ``reason`` says why it cannot go on."""

    name: str
    runs: Sequence[Run]
    search: RateSearch
    reason: str

    @property
    def waiting(self) -> Run | None:
        """The run that it waits for."""
        return next((run for run in self.runs if not run.is_final), None)

    @property
    def next_rate(self) -> float | None:
        return None if self.reason or self.waiting else self.search.next_load

    @property
    def is_done(self) -> bool:
        return self.waiting is None and self.next_rate is None

    @property
    def most_left(self) -> int:
        """Runs that are still to end, at most."""
        return 0 if self.reason else self.search.most_left

    @property
    def waiting_rate(self) -> float | None:
        return None if self.waiting is None else rate_of(self.waiting)


def rate_of(run: Run) -> float | None:
    """The rate that was asked of a run, else its trace's own where it has all of it."""
    options = run.spec.get("workload", {}).get("options", {})
    rate = options.get("rate")
    if isinstance(rate, int | float):
        return float(rate)
    return None if options.get("limit") else own_rate(run)


def own_rate(run: Run) -> float | None:
    """Requests a second of an uploaded trace as it stands."""
    arrivals = run.artifact.summary.get("arrivals") if run.artifact else None
    return arrivals["requests"] / arrivals["span"] if arrivals and arrivals["span"] else None


def with_rate(run: Run, rate: float) -> dict[str, Any]:
    """The spec of the run at another rate."""
    workload = run.spec["workload"]
    return {**run.spec, "workload": {**workload, "options": {**workload["options"], "rate": rate}}}


def policies_of(experiment: Experiment) -> list[str]:
    """The policies with runs at a rate that was asked for, or of a trace that has one of its own."""
    arrivals = "artifact__summary__arrivals__span"
    rows = _runs(experiment).values_list("policy", "spec__workload__options__rate", arrivals).distinct()
    return sorted({policy for policy, rate, span in rows if isinstance(rate, int | float) or span})


def _runs(experiment: Experiment) -> RunQuerySet:
    """Also those in the trash: what they gave was given."""
    return Run.everything.filter(experiment=experiment, kind=Run.Kind.POLICY, family="serving")


def lines_of(experiment: Experiment, study: RateStudy | None = None) -> list[RateLine]:
    """The lines that ``study`` looks at, or could."""
    groups: dict[str, list[Run]] = {}
    for run in _runs(experiment).with_figures().prefetch_related("artifact").order_by("queued_at", "id"):
        if (rate_of(run) or own_rate(run)) and (
            study is None or not study.policies or run.policy in study.policies
        ):
            groups.setdefault(_key(run), []).append(run)
    names = _names([runs[0] for runs in groups.values()])
    goal, since = (study.goal, study.created_at) if study else (RateGoal(), None)
    return [_line(name, runs, goal, since) for name, runs in zip(names, groups.values(), strict=True)]


def _key(run: Run) -> str:
    """What the runs of a line have in common: all but the rate."""
    spec = with_rate(run, 0.0)
    workload = {**spec["workload"], "source": run.artifact_id}
    return jsonio.digest({**spec, "workload": workload, "needs": run.needs})


def _line(name: str, runs: Sequence[Run], goal: RateGoal, since: datetime | None) -> RateLine:
    """The runs that were there before do not count among those that a search may ask for."""
    before = {rate_of(run) for run in runs if since is None or run.queued_at < since} - {None}
    search = RateSearch(rate_of(runs[0]) or own_rate(runs[0]) or 1.0, PRECISION, MOST_TRIALS + len(before))
    reason = ""
    for run in runs:
        if run.state == Run.State.SUCCEEDED:
            if lack := _lack(run.figures, goal):
                reason = reason or lack
            elif rate := rate_of(run):
                search.tell(rate, goal.is_met(run.figures))
        elif run.is_final:
            reason = reason or f"{run.get_state_display()}: {run.reason}".removesuffix(": ")
    return RateLine(name, runs, search, reason)


def _lack(figures: Mapping[str, float], goal: RateGoal) -> str:
    if goal.attainment is not None and "slo_attainment" not in figures:
        return "nothing says what is in time: its runs have no slo_ttft, slo_tpot or slo_normalized"
    if goal.tbt_p99 is not None and "scheduling_delay_p50" not in figures:
        return "its runs do not tell how long requests wait"
    return ""


def _names(runs: Sequence[Run]) -> list[str]:
    """Policies, with what tells the lines of one policy apart."""
    tables = [_columns(run) for run in runs]
    names = []
    for run, table in zip(runs, tables, strict=True):
        same = [other for one, other in zip(runs, tables, strict=True) if one.policy == run.policy]
        differing = [key for key in table if len({repr(other.get(key)) for other in same}) > 1]
        names.append(", ".join([run.policy, *(f"{key} {table[key]}" for key in differing)]))
    return names


def _columns(run: Run) -> dict[str, Any]:
    options = {key: value for key, value in run.spec["workload"]["options"].items() if key != "rate"}
    columns = {"on": run.hardware, "mode": run.mode, "seed": run.seed, "workload": str(run.artifact or "")}
    return {**columns, **options, **run.spec.get("knobs", {})}
