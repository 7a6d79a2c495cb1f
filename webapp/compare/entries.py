"""What is compared: runs, or repeats of one folded into a line, with an estimate of each figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.core.differences import ENDS, INTERVALS
from webapp.compare.parameters import SEED, parameters_of
from webapp.compare.statistics import Estimate, estimate, with_ends
from webapp.runs.models import Run, RunDocument

#: Parameters, by the first part of their key, that say what was asked; the others say how it is answered.
QUESTION = ("workload", "option", "hardware")


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: a run, or its repeats with other seeds folded into one."""

    runs: tuple[Run, ...]
    parameters: Mapping[str, Any]
    estimates: Mapping[str, Estimate]
    title: str = ""

    @property
    def run(self) -> Run:
        return self.runs[0]

    @property
    def name(self) -> str:
        return self.title or self.run.policy or self.run.kind

    @property
    def mode(self) -> str:
        return self.run.mode

    @property
    def has_page(self) -> bool:
        """Whether its run is stored; what shipped with a release has no page of its own."""
        return not self.run._state.adding

    @property
    def question(self) -> tuple[tuple[str, Any], ...]:
        """What the policies of a comparison are asked about: workload, its options and hardware, by key.

        Only answers to one question can be better or worse than each other.
        """
        asked = (item for item in self.parameters.items() if item[0].split(".")[0] in QUESTION)
        return tuple(sorted(asked, key=lambda item: item[0]))

    @property
    def statuses(self) -> Mapping[str, str]:
        """How its runs ended, each once, with the words for it: ``{"failed": "1 of 3 failed"}``."""
        counts = Counter(status_of(run) for run in self.runs)
        total = len(self.runs)
        return {s: s if count == total else f"{count} of {total} {s}" for s, count in counts.items()}

    def with_noise(self) -> Entry:
        """The same with its ratios inside the noise."""
        ratios = {name: self.estimates[name] for name in INTERVALS if name in self.estimates}
        marked = {name: replace(one, inside_noise=True) for name, one in ratios.items()}
        return replace(self, estimates={**self.estimates, **marked})

    @property
    def dashboard_status(self) -> str:
        """What PyTorch's dashboard would call the ends of its runs, each once; empty for other families."""
        return ", ".join(dict.fromkeys(run.dashboard_status for run in self.runs if run.dashboard_status))

    @property
    def reason(self) -> str:
        return next((run.reason for run in self.runs if run.reason), "")


def status_of(run: Run) -> str:
    """``ok`` or ``infeasible``, or the run's state where it has no answer."""
    return run.outcome_status if run.state in Run.ANSWERED and run.outcome_status else run.state


def entries_of(runs: Iterable[Run], unfold: bool) -> list[Entry]:
    """One entry for all runs that differ in nothing but the seed; one for each run when unfolded."""
    groups: dict[str, list[tuple[Run, dict[str, Any]]]] = {}
    for run in runs:
        parameters = parameters_of(run)
        key = str(run.pk) if unfold else repr([(k, v) for k, v in sorted(parameters.items()) if k != SEED])
        groups.setdefault(key, []).append((run, parameters))
    return [_entry(group, unfold) for group in groups.values()]


def _entry(group: Sequence[tuple[Run, dict[str, Any]]], unfold: bool) -> Entry:
    parameters = dict(group[0][1])
    if len(group) > 1 and not unfold:
        del parameters[SEED]
    values: dict[str, list[float]] = {}
    for run, _ in group:
        for name, value in run.figures.items():
            values.setdefault(name, []).append(value)
    return Entry(tuple(run for run, _ in group), parameters, estimates_of(values))


def estimates_of(values: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """An estimate of each figure from its values in all repeats; a ratio's has its interval."""
    estimates = {name: estimate(found) for name, found in values.items() if name not in ENDS}
    for name, (low, high) in INTERVALS.items():
        if name in estimates:
            estimates[name] = with_ends(estimates[name], values.get(low, ()), values.get(high, ()))
    return estimates


def with_older_noise(entries: Sequence[Entry]) -> list[Entry]:
    """Entries whose runs said that their speed-up was noise before ratios had intervals say so too."""
    without = [one for one in entries for name in INTERVALS if _lacks_interval(one, name)]
    runs = [run.pk for entry in without for run in entry.runs]
    said = RunDocument.objects.filter(outcome__provenance__compilation__inside_the_noise=True)
    noisy = set(said.filter(run__in=runs).values_list("run", flat=True)) if runs else set()
    return [entry.with_noise() if any(run.pk in noisy for run in entry.runs) else entry for entry in entries]


def _lacks_interval(entry: Entry, name: str) -> bool:
    found = entry.estimates.get(name)
    return found is not None and found.low is None and entry.mode == "measured"
