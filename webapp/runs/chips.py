"""The policies of a question as chips: grouped by mechanism, with what slows one down and why one is not
offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django import forms

from experiments.core import registry
from experiments.core.paper import Paper
from experiments.core.policy import AT_ONCE, MECHANISMS, Policy
from experiments.core.units import human
from webapp.runs.choices import Choices
from webapp.runs.durations import Key, Past
from webapp.runs.forms import ExperimentForm
from webapp.runs.offers import lack_of, modes_on, read_by

#: What takes longer, in seconds, carries its time.
QUICK = 5.0
#: Titles of the groups that are no mechanism.
COMPARED_WITH, OTHERS, ELSEWHERE = "compared with", "others", "of another question"


@dataclass(frozen=True)
class Chip:
    """A policy to choose.

    ``words``   what a search looks through.
    ``slow``    the time that it took, or its own mark; empty for a quick one.
    ``reason``  why it cannot be carried out in the chosen way.
    ``failed``  whether its plan for just this question did not fit in an earlier run.
    """

    key: str
    policy: type[Policy]
    words: str
    checked: bool
    slow: str
    reason: str
    is_quick: bool
    failed: bool

    @property
    def is_offered(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Group:
    title: str
    chips: tuple[Chip, ...]

    @property
    def chosen(self) -> int:
        return sum(chip.checked for chip in self.chips)

    @property
    def is_full(self) -> bool:
        """Whether all that can be carried out are chosen."""
        return all(chip.checked or not chip.is_offered for chip in self.chips)


@dataclass(frozen=True)
class KnobRows:
    """A policy's knobs; ``said`` are the values that are not the usual ones."""

    chip: Chip
    fields: tuple[forms.BoundField, ...]

    @property
    def has_errors(self) -> bool:
        return any(field.errors for field in self.fields)

    @property
    def said(self) -> str:
        typed = ((field.label, field.value()) for field in self.fields)
        return ", ".join(f"{label} = {value}" for label, value in typed if value)


@dataclass(frozen=True)
class Choice:
    """A button that checks just these policies: ``all``, those that fit, those that are quick."""

    name: str
    title: str
    keys: tuple[str, ...]
    is_chosen: bool

    @property
    def keys_text(self) -> str:
        return " ".join(self.keys)


@dataclass(frozen=True)
class PaperChoice:
    """The policies of one paper, with what its family compares with."""

    paper: Paper
    keys: str


@dataclass(frozen=True)
class PolicyStep:
    groups: tuple[Group, ...]
    choices: tuple[Choice, ...]
    knobs: tuple[KnobRows, ...]
    papers: tuple[PaperChoice, ...]

    @property
    def chips(self) -> Iterator[Chip]:
        return (chip for group in self.groups for chip in group.chips)

    @property
    def chosen(self) -> int:
        return sum(group.chosen for group in self.groups)

    @property
    def total(self) -> int:
        return sum(len(group.chips) for group in self.groups)

    @property
    def changed_knobs(self) -> int:
        return sum(1 for row in self.knobs if row.chip.checked and row.said)


def policy_step(
    form: ExperimentForm, choices: Choices, past: Mapping[Key, Past], failed: Iterable[str] = ()
) -> PolicyStep:
    """The chips for these choices; ``failed`` are policies whose plan for just this did not fit."""
    chosen = set(form["policies"].value() or ())
    modes = form["modes"].value() or ()
    shown = _list_shown(choices.family, chosen)
    chips = [_chip(policy, chosen, choices, modes, past, set(failed)) for policy in shown]
    groups = tuple(_groups(chips, choices.family))
    knobs = (KnobRows(chip, tuple(form.bound(f"knob:{chip.key}:"))) for chip in chips)
    return PolicyStep(
        groups, _choices(chips, choices.family), tuple(r for r in knobs if r.fields), tuple(_papers(chips))
    )


def _list_shown(family: str, chosen: set[str]) -> list[type[Policy]]:
    """The family's policies, then what else is chosen."""
    return [p for p in registry.all_policies() if p.family == family] + [
        p for p in registry.all_policies() if p.family != family and f"{p.family}/{p.name}" in chosen
    ]


def _chip(
    policy: type[Policy],
    chosen: set[str],
    choices: Choices,
    modes: Sequence[str],
    past: Mapping[Key, Past],
    failed: set[str],
) -> Chip:
    key = f"{policy.family}/{policy.name}"
    took = [past[known].seconds for mode in modes if (known := (policy.family, policy.name, mode)) in past]
    seconds = max(took, default=None)
    is_quick = seconds < QUICK if seconds is not None else policy.effort == AT_ONCE
    slow = "" if is_quick else human(seconds, "s") if seconds is not None else policy.effort
    reason = _reason(policy, choices.kinds, modes) or lack_of(policy, choices.told, modes)
    return Chip(key, policy, _words(policy), key in chosen, slow, reason, is_quick, policy.name in failed)


def _reason(policy: type[Policy], kinds: Sequence[str], modes: Sequence[str]) -> str:
    possible = modes_on(policy, kinds)
    if not possible:
        return f"needs {read_by(policy)}"
    return "" if set(possible) & set(modes) or not modes else f"{' or '.join(possible)} only"


def _words(policy: type[Policy]) -> str:
    """Name, mechanism, what it says of itself, and its paper with authors, venue and year."""
    paper = registry.sheet(policy).paper
    cited = [paper.title, *paper.authors, paper.venue, str(paper.year)] if paper else []
    return " ".join([policy.name, policy.mechanism, policy.summary(), *cited]).lower()


def _groups(chips: Sequence[Chip], family: str) -> Iterator[Group]:
    titles = [COMPARED_WITH, *MECHANISMS.get(family, ()), OTHERS, ELSEWHERE]
    held: dict[str, list[Chip]] = {title: [] for title in titles}
    for chip in chips:
        held[_title(chip.policy, family)].append(chip)
    return (Group(title, tuple(found)) for title, found in held.items() if found)


def _title(policy: type[Policy], family: str) -> str:
    if policy.family != family:
        return ELSEWHERE
    if policy.is_baseline:
        return COMPARED_WITH
    return policy.mechanism if policy.mechanism in MECHANISMS[family] else OTHERS


def _choices(chips: Sequence[Chip], family: str) -> tuple[Choice, ...]:
    """The baseline is in each: nothing is compared without it."""
    offered = [chip for chip in chips if chip.is_offered and chip.policy.family == family]
    fitting = [chip for chip in offered if not chip.failed or chip.policy.is_baseline]
    quick = [chip for chip in offered if chip.is_quick or chip.policy.is_baseline]
    chosen = {chip.key for chip in chips if chip.checked}
    rows = [
        ("all", "every policy that can be carried out on this workload", offered),
        (
            "that fit",
            "all but those whose plan did not fit in an earlier run of just this",
            fitting,
        ),
        ("quick", f"those that took less than {human(QUICK, 's')}, or say that they decide at once", quick),
        ("none", "no policy", []),
    ]
    sets = [{chip.key for chip in found} for _, _, found in rows]
    pressed = sets.index(chosen) if chosen in sets else None
    return tuple(
        Choice(name, title, tuple(chip.key for chip in found), index == pressed)
        for index, (name, title, found) in enumerate(rows)
    )


def _papers(chips: Sequence[Chip]) -> Iterator[PaperChoice]:
    found: dict[str, tuple[Paper, list[str]]] = {}
    first = [chip.key for chip in chips if chip.policy.is_baseline]
    for chip in chips:
        paper = registry.sheet(chip.policy).paper
        if paper and chip.is_offered and chip.key not in first:
            found.setdefault(paper.key, (paper, [*first]))[1].append(chip.key)
    ordered = sorted(found.values(), key=lambda one: (one[0].year, one[0].title))
    return (PaperChoice(paper, " ".join(keys)) for paper, keys in ordered)
