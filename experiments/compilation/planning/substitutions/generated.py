"""The rules that this lab's own generator found, proved and tested.

``generated.txt``, one a line with its verdicts.

They are not judged again in every run; the tests do that. Made by ``python -m experiments rules --out
experiments/compilation/planning/substitutions/generated.txt``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.compilation.planning.substitutions.generator import VOCABULARIES, equal_graphs, vocabulary
from experiments.compilation.planning.substitutions.pairs import both_ways, candidates, pruned
from experiments.compilation.planning.substitutions.proof import is_provable
from experiments.compilation.planning.substitutions.rule_text import parse_rule, rule_text
from experiments.compilation.planning.substitutions.testing import Tested
from experiments.compilation.planning.substitutions.verdicts import RuleVerdict, verdicts
from experiments.core.progress import Progress, part, silent
from experiments.workloads.substitutions import Substitution

FILE = Path(__file__).parent / "generated.txt"
DEPTH = 3


def generate_rules(name: str, depth: int = DEPTH, progress: Progress = silent) -> list[Substitution]:
    """Return the rules of one vocabulary, not yet judged."""
    words = vocabulary(name)
    found = equal_graphs(words, depth, progress=progress)
    return both_ways(pruned(candidates(found, words.sorts)), name)


def judge_rules(
    names: Iterable[str] = VOCABULARIES, depth: int = DEPTH, prove: bool = True, progress: Progress = silent
) -> list[RuleVerdict]:
    """Return the rules of these vocabularies with their verdicts; one that two of them hold stands once."""
    names = tuple(names)
    rules: dict[str, Substitution] = {}
    for number, name in enumerate(names):
        ours = part(progress, number / len(names) / 2, (number + 1) / len(names) / 2)
        rules |= {
            rule_text(rule): rule
            for rule in generate_rules(name, depth, ours)
            if rule_text(rule) not in rules
        }
    return list(verdicts(rules.values(), is_provable if prove else None, part(progress, 0.5, 1.0)))


def verdict_text(found: Sequence[RuleVerdict]) -> str:
    """Return the usable rules as a file: name, proof, shapes on which the sides were equal, guard, rule."""
    rows = [
        (one.name, one.proof, str(one.guarded.equal), one.guard, rule_text(one.rule))
        for one in found
        if one.usable and one.rule is not None
    ]
    return "".join("\t".join(row) + "\n" for row in rows)


def parse_verdicts(text: str) -> tuple[RuleVerdict, ...]:
    """Return the rules of a file with the verdicts that they had when it was made."""
    found = []
    for line in text.splitlines():
        name, proof, equal, guard, rule = line.split("\t")
        tested = Tested(equal=int(equal))
        found.append(RuleVerdict(name, parse_rule(rule, name), proof, tested, guard, tested))
    return tuple(found)


@functools.cache
def generated_verdicts() -> tuple[RuleVerdict, ...]:
    return parse_verdicts(FILE.read_text())
