"""What a comparison of memory policies says in words: what the baseline needs, which policies fit, and which
win.

Only where every run is a simulation of one workload on one device, and the baseline is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments import hardware
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.units import human, significant
from webapp.compare.comparison import Comparison, Entry
from webapp.compare.statistics import pareto_front
from webapp.runs.models import Run, RunDocument

MEMORY, TIME, IDEAL = "peak_memory", "step_time", "ideal_step_time"
WAITING = (Run.State.QUEUED, Run.State.RUNNING)


@dataclass(frozen=True)
class Winner:
    """``what`` it is best at, and one sentence made of its figures."""

    what: str
    entry: Entry
    sentence: str


@dataclass(frozen=True)
class Answer:
    """``needs`` bytes with nothing moved on a device of ``capacity``; ``wrong`` are runs that
    gave no answer.
    """

    device: str
    capacity: float
    needs: float | None
    fits: tuple[Entry, ...]
    too_large: tuple[Entry, ...]
    waiting: tuple[Entry, ...]
    wrong: tuple[Entry, ...]
    winners: tuple[Winner, ...]

    @property
    def baseline_fits(self) -> bool:
        return self.needs is not None and self.needs <= self.capacity

    @property
    def total(self) -> int:
        return len(self.fits) + len(self.too_large) + len(self.waiting) + len(self.wrong)

    @property
    def idle(self) -> tuple[Entry, ...]:
        """Policies that change nothing here: the same bytes and the same time as the baseline."""
        base = _baseline(self.fits)
        return tuple(
            entry for entry in self.fits if base and entry is not base and _point(entry) == _point(base)
        )


def answer_of(comparison: Comparison) -> Answer | None:
    """``None`` where the comparison asks another question."""
    entries = comparison.entries
    baseline = _baseline(entries)
    if (
        comparison.family != "memory"
        or comparison.mode != "simulated"
        or baseline is None
        or len(entries) < 2
    ):
        return None
    if len({entry.question for entry in entries}) > 1:
        return None
    try:
        device = hardware.resolve(baseline.run.spec["hardware"]).device
    except BadInput:
        return None
    fits = [entry for entry in entries if MEMORY in entry.estimates and TIME in entry.estimates]
    silent = [entry for entry in entries if entry not in fits]
    too_large = [entry for entry in silent if "infeasible" in entry.statuses]
    waiting = [entry for entry in silent if entry.run.state in WAITING]
    return Answer(
        baseline.run.hardware,
        float(device.memory_bytes),
        _needs(baseline),
        tuple(fits),
        tuple(too_large),
        tuple(waiting),
        tuple(entry for entry in silent if entry not in too_large and entry not in waiting),
        winners(fits, baseline),
    )


def _baseline(entries: Sequence[Entry]) -> Entry | None:
    """The run of the policy that changes nothing."""
    known = registry.family_policies("memory")
    names = [policy.name for policy in known.values() if policy.is_baseline]
    return next((entry for entry in entries if entry.run.policy in names), None)


def _needs(baseline: Entry) -> float | None:
    """The bytes of the step with nothing moved, as its run has told, whether it fits or not."""
    told = RunDocument.objects.filter(run=baseline.run.pk)
    value = told.values_list("outcome__provenance__live_peak", flat=True).first()
    if isinstance(value, int | float):
        return float(value)
    return baseline.estimates[MEMORY].mean if MEMORY in baseline.estimates else None


def winners(fits: Sequence[Entry], baseline: Entry) -> tuple[Winner, ...]:
    """The best in each respect; of equals the baseline, then the one asked first."""
    if not fits:
        return ()
    least = _best(fits, lambda entry: (_memory(entry), _time(entry)), baseline)
    fastest = _best(fits, lambda entry: (_time(entry), _memory(entry)), baseline)
    front = [fits[index] for index in pareto_front([_point(entry) for entry in fits], (True, True))]
    even = _best(front, lambda entry: (_memory(entry) * _time(entry), 0.0), baseline)
    titles = (
        ("least memory", least, "needs the least memory"),
        ("fastest that fits", fastest, "is the fastest that fits"),
        ("best trade-off", even, "is the best trade-off, with the smallest product of memory and time"),
    )
    found = []
    for entry in dict.fromkeys(id(entry) for _, entry, _ in titles):
        own = [title for title in titles if id(title[1]) == entry]
        words = " and ".join(words for _, _, words in own)
        what = ", ".join(what for what, _, _ in own)
        found.append(Winner(what, own[0][1], f"{words}: {_describe(own[0][1], baseline)}"))
    return tuple(found)


def _best(entries: Sequence[Entry], cost: Callable[[Entry], tuple[float, float]], baseline: Entry) -> Entry:
    return min(entries, key=lambda entry: (*cost(entry), entry is not baseline))


def _describe(entry: Entry, baseline: Entry) -> str:
    """``9.4 GiB and 2.1 s per step, 1.04 times the step without a limit; 38 % less memory than the
    baseline``.
    """
    text = f"{human(_memory(entry), 'bytes')} and {human(_time(entry), 's')} per step"
    if IDEAL in entry.estimates and entry.estimates[IDEAL].mean > 0:
        text += f", {_slower(_time(entry) / entry.estimates[IDEAL].mean)}"
    needs = _needs(baseline)
    if entry is baseline or not needs:
        return text
    share = 1 - _memory(entry) / needs
    return f"{text}, with {human(share, 'fraction')} less memory than the baseline" if share > 0 else text


def _slower(ratio: float) -> str:
    """Against the step with endless memory."""
    if ratio < 1.0005:
        return "as fast as with endless memory"
    return f"{significant(ratio)} times the time with endless memory"


def _memory(entry: Entry) -> float:
    return entry.estimates[MEMORY].mean


def _time(entry: Entry) -> float:
    return entry.estimates[TIME].mean


def _point(entry: Entry) -> tuple[float, float]:
    return _time(entry), _memory(entry)
