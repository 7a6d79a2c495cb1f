"""The generator: which graphs are paired, which pairs are dropped, and that the file of rules is what it
makes.
"""

from __future__ import annotations

from experiments.compilation.planning.substitutions.generated import (
    FILE,
    generate_rules,
    generated_verdicts,
    judge_rules,
    parse_verdicts,
    verdict_text,
)
from experiments.compilation.planning.substitutions.generator import Vocabulary, equal_graphs
from experiments.compilation.planning.substitutions.pairs import (
    candidates,
    common,
    is_renaming,
    pruned,
    reverse_rule,
    same_end,
)
from experiments.compilation.planning.substitutions.rule_text import parse_rule, rule_text
from experiments.compilation.planning.substitutions.testing import UNGROUPED
from experiments.compilation.planning.substitutions.verdicts import verdict


def test_all_laws_of_a_product_and_a_transpose() -> None:
    """Of two matrices, up to three operators: (AB)' = B'A', its two halves, and that products associate."""
    words = Vocabulary(((4, 4), (4, 4)), (("matmul", ()), ("transpose", ())))
    found = [rule_text(rule) for rule in pruned(candidates(equal_graphs(words, 3), words.sorts))]
    assert [rule for rule in found if "transpose" in rule] == [
        "transpose(matmul(a, b)) => matmul(transpose(b), transpose(a))",
        "matmul(transpose(a), b) => transpose(matmul(transpose(b), a))",
        "matmul(a, transpose(b)) => transpose(matmul(b, transpose(a)))",
    ]
    assert found[0] == "matmul(matmul(a, b), a) => matmul(a, matmul(b, a))"


def test_what_is_dropped() -> None:
    assert common(parse_rule("relu(matmul(a, b)) => transpose(relu(transpose(matmul(a, b))))"))
    assert same_end(parse_rule("ew_add(relu(relu(a)), b) => ew_add(relu(a), b)"))
    law = parse_rule("matmul(a, ew_add(b, c)) => ew_add(matmul(a, b), matmul(a, c))")
    assert not common(law) and not same_end(law)
    other_names = parse_rule("ew_add(matmul(b, c), matmul(b, a)) => matmul(b, ew_add(c, a))")
    special = parse_rule("matmul(a, ew_add(b, a)) => ew_add(matmul(a, b), matmul(a, a))")
    assert is_renaming(law, other_names) and is_renaming(law, reverse_rule(law)) and is_renaming(law, special)
    assert not is_renaming(special, law)
    assert pruned([special, law, other_names]) == [law]


def test_the_file_is_what_the_generator_makes() -> None:
    file = {one.name: one for one in generated_verdicts()}
    assert verdict_text(list(file.values())) == FILE.read_text()
    made = {rule.name: rule_text(rule) for rule in generate_rules("convolutions")}
    kept = {name: rule_text(one.rule) for name, one in file.items() if one.rule and name in made}
    assert len(kept) >= 15 and kept.items() <= made.items()
    joined = next(one for one in file.values() if one.guard == UNGROUPED and "split" in rule_text(one.rule))
    assert joined.proof == "proved" and verdict(joined.rule, None).test.counterexample


def test_rules_of_the_file_pass_the_test_again() -> None:
    for one in generated_verdicts()[::6]:
        again = verdict(one.rule, None)
        assert again.usable and again.guard == one.guard


def test_rules_are_judged_and_written() -> None:
    found = judge_rules(["algebra"], depth=2)
    assert [one.label for one in found].count("proved and tested") == len(found)
    assert [one.name for one in parse_verdicts(verdict_text(found))] == [one.name for one in found]
