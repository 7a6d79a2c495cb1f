"""Both verdicts on a rule, proof and test, and what they allow.

A rule is applied only where testing found it right.

A proof alone allows nothing (the axioms leave out what grouped convolutions need), and a rule that only the
test supports may be applied: the test is exact. A rule with a counterexample is tested again under each guard
on its convolutions' groups; if it passes, it is applied where the guard holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from experiments.compilation.planning.substitutions.canonical import canonical
from experiments.compilation.planning.substitutions.proof import NOT_PROVED, PROVED, is_provable
from experiments.compilation.planning.substitutions.rule_text import rule_text
from experiments.compilation.planning.substitutions.testing import GUARDS, Tested, examine
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, silent
from experiments.workloads.substitutions import Substitution

NOT_TRIED = "not tried"
LABELS = ("proved and tested", "tested only", "right where a guard holds", "counterexample", "refused")


@dataclass(frozen=True)
class RuleVerdict:
    """``rule`` in the algebra (None: it is outside, ``reason`` says why).

    ``test`` is the one without any guard.

    ``guarded`` is the test under ``guard``, the first of ``GUARDS`` under which none of its shapes differ.
    """

    name: str
    rule: Substitution | None
    proof: str = NOT_TRIED
    test: Tested = field(default_factory=Tested)
    guard: str = ""
    guarded: Tested = field(default_factory=Tested)
    reason: str = ""

    @property
    def usable(self) -> bool:
        return self.rule is not None and self.guarded.passed

    @property
    def label(self) -> str:
        if self.rule is None or not (self.test.passed or self.test.counterexample):
            return "refused"
        if self.test.counterexample:
            return "right where a guard holds" if self.usable else "counterexample"
        return "proved and tested" if self.proof == PROVED else "tested only"

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.label} ({self.proof}"]
        if self.test.counterexample:
            parts.append(f", differs for {self.test.counterexample}")
        if self.usable and self.guard:
            parts.append(f", {self.guarded.equal} shapes equal if {self.guard}")
        elif self.usable:
            parts.append(f", {self.test.equal} shapes equal")
        if self.test.added:
            parts.append(f", needs {', '.join(self.test.added)}")
        elif self.test.refused and not self.test.counterexample:
            parts.append(f", the target refuses {self.test.refused} more")
        parts.append(")" if not self.reason else f"): {self.reason}")
        return "".join(parts) + (f" | {rule_text(self.rule)}" if self.rule else "")


def verdict(rule: Substitution, prover: Callable[[Substitution], bool] | None = is_provable) -> RuleVerdict:
    """Prove (``prover`` None: do not) and test one rule as it stands in a file."""
    try:
        known = canonical(rule)
    except BadInput as error:
        return RuleVerdict(rule.name, None, reason=error.what)
    if known.unbound:
        return RuleVerdict(rule.name, known, reason=examine(known).reason)
    proof = NOT_TRIED if prover is None else PROVED if prover(known) else NOT_PROVED
    plain = examine(known)
    if plain.counterexample is None:
        return RuleVerdict(rule.name, known, proof, plain, "", plain, plain.reason)
    for guard in GUARDS[1:]:
        under = examine(known, guard=guard)
        if under.passed:
            return RuleVerdict(rule.name, known, proof, plain, guard, under)
    return RuleVerdict(rule.name, known, proof, plain)


def verdicts(
    rules: Iterable[Substitution],
    prover: Callable[[Substitution], bool] | None = is_provable,
    progress: Progress = silent,
) -> tuple[RuleVerdict, ...]:
    """One verdict for each rule, in order."""
    rules = tuple(rules)
    found = []
    for number, rule in enumerate(rules):
        progress(number / len(rules), f"rule {rule.name}")
        found.append(verdict(rule, prover))
    return tuple(found)


def count_labels(found: Iterable[RuleVerdict]) -> dict[str, int]:
    """Return how many rules have each of ``LABELS``."""
    counts = Counter(one.label for one in found)
    return {label: counts[label] for label in LABELS}
