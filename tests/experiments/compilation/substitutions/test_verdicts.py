"""Proof and exact test of rules: what the axioms prove is still tested, and a wrong rule is reported with its
shapes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.compilation.planning.substitutions.axioms import AXIOMS, Setting, instances
from experiments.compilation.planning.substitutions.dims import Dims, IllTyped
from experiments.compilation.planning.substitutions.evaluate import JoinedTensor, apply, evaluate
from experiments.compilation.planning.substitutions.proof import is_provable
from experiments.compilation.planning.substitutions.rule_text import parse_rule, rule_text
from experiments.compilation.planning.substitutions.testing import EQUAL_GROUPS, UNGROUPED, examine
from experiments.compilation.planning.substitutions.verdicts import count_labels, verdict, verdicts
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.workloads.substitutions import Operand, Operator

CONV = "conv2d[kernel_h=3,kernel_w=3,stride_h=1,stride_w=1,pad=0]"
QKV = "matmul(a, b), matmul(a, c) => split[axis=-1](matmul(a, concat[axis=-1](b, c)))"


def kernel(size: int, stride: int, pad: int) -> tuple[tuple[str, int], ...]:
    return tuple(
        {"kernel_h": size, "kernel_w": size, "stride_h": stride, "stride_w": stride, "pad": pad}.items()
    )


def test_text_and_rule_are_one() -> None:
    rule = parse_rule(QKV)
    assert len(rule.source) == 2 and [op.kind for op in rule.target] == ["concat", "matmul", "split"]
    assert rule.outputs == ((Operand(0), Operand(2, 0)), (Operand(1), Operand(2, 1)))
    assert parse_rule(rule_text(rule)) == rule
    for wrong in ("relu(a)", "relu(a) => relu(a", "relu(a) => relu(a), relu(a).1", "a => relu(a)"):
        with pytest.raises(BadInput):
            parse_rule(wrong)


def test_a_split_cuts_at_the_newest_join_and_one_without_a_join_is_refused() -> None:
    rule = parse_rule("matmul(a, concat[axis=-1](concat[axis=-1](b, c), d)) => relu(a)")
    ones = {
        Operand(-1 - i): JoinedTensor.of(np.ones(shape, np.int64))
        for i, shape in enumerate([(2, 3), (3, 1), (3, 2), (3, 4)])
    }
    product = evaluate(rule.source, ones)[rule.outputs[0][0]]
    assert product.joins == ((), (1, 3))
    split = Operator("split", (Operand(-1),), (("axis", -1),))
    first, second = apply(split, [product])
    assert (first.array.shape, first.joins) == ((2, 3), ((), (1,))) and second.array.shape == (2, 4)
    with pytest.raises(IllTyped, match="nothing was joined"):
        apply(split, [second])


def test_shapes_solve_the_sources_equations() -> None:
    dims = Dims()
    total, a, b, seven = dims.new(), dims.new(), dims.new(), dims.new(7)
    dims.sums.append((total, a, b))
    dims.equal(total, seven)
    found = [dims.solve(np.random.default_rng(seed)) for seed in range(20)]
    assert {x[a] + x[b] for x in found if x} == {7} and len({x[a] for x in found if x}) > 3
    assert not dims.equality_test()(a, b)


def test_every_axiom_holds_in_integers_and_three_need_their_guard() -> None:
    setting = Setting(
        (-1, -2),
        (kernel(1, 1, 0), kernel(3, 1, 0), kernel(3, 2, 1)),
        (kernel(2, 2, 1),),
        (kernel(3, 1, 0)[:2],),
    )
    checked = [(axiom, statement) for axiom in AXIOMS for statement in instances(axiom, setting)]
    assert {axiom for axiom, _ in checked} == set(AXIOMS)
    for axiom, statement in checked:
        assert examine(statement, guard=axiom.guard, shapes=15).equal >= 15, axiom
    guarded = [statement for axiom, statement in checked if axiom.guard]
    assert all(examine(statement).counterexample for statement in guarded) and len(guarded) == 9


def test_the_axioms_do_not_prove_what_is_wrong() -> None:
    for wrong in (
        "matmul(a, b) => matmul(b, a)",
        "relu(ew_add(a, b)) => ew_add(relu(a), relu(b))",
        "concat[axis=-1](a, b) => concat[axis=-1](b, a)",
        f"{CONV}(a, b) => {CONV}(a, relu(b))",
    ):
        found = verdict(parse_rule(wrong))
        assert (found.proof, found.label) == ("not proved", "counterexample"), wrong


def test_columns_of_weights_joined_are_proved_and_tested() -> None:
    found = verdict(parse_rule(QKV))
    assert (found.label, found.guard, found.usable) == ("proved and tested", "", True)
    assert is_provable(
        parse_rule("matmul(a, b), matmul(c, b) => split[axis=-2](matmul(concat[axis=-2](a, c), b))")
    )


def test_a_grouped_convolution_refutes_what_the_axioms_prove() -> None:
    """Filters of two grouped convolutions joined would take the groups of one: output channels interleave."""
    found = verdict(
        parse_rule(f"concat[axis=-3]({CONV}(a, b), {CONV}(a, c)) => {CONV}(a, concat[axis=-4](b, c))")
    )
    assert (found.proof, found.label, found.guard) == ("proved", "right where a guard holds", UNGROUPED)
    counterexample = found.test.counterexample
    assert counterexample is not None and min(counterexample.groups) > 1
    joined = (
        f"concat[axis=-3]({CONV}(a, b), {CONV}(c, d)) => {CONV}(concat[axis=-3](a, c), concat[axis=-4](b, d))"
    )
    assert verdict(parse_rule(joined)).guard == EQUAL_GROUPS


def test_what_the_target_needs_beyond_the_source_is_named() -> None:
    found = examine(parse_rule("relu(a), relu(b) => split[axis=-1](relu(concat[axis=-1](a, b)))"))
    assert found.passed and found.refused > 0 and found.added == ("t1.0 = t2.0",)
    swapped = (
        "ew_add(concat[axis=-1](a, b), concat[axis=-1](c, d)) => ew_add(concat[axis=-1](c, b), "
        "concat[axis=-1](a, d))"
    )
    assert examine(parse_rule(swapped)).added == ("t1.1 = t3.1", "t2.1 = t4.1")


def test_all_of_tasos_rules_are_proved_and_eleven_need_a_guard(shared_data: Path) -> None:
    rules = open_file(
        shared_data / "compilation/taso_graph_subst.pb", "auto", WorkloadOptions()
    ).reading.value.rules
    found = verdicts(rules)
    assert all(one.proof == "proved" for one in found)
    assert (
        count_labels(found)["proved and tested"] == 122
        and count_labels(found)["right where a guard holds"] == 11
    )
    guards = {int(one.name.removeprefix("taso-")): one.guard for one in found if one.guard}
    assert {rule for rule, guard in guards.items() if guard == EQUAL_GROUPS} == {99, 100, 130, 131}
    assert {rule for rule, guard in guards.items() if guard == UNGROUPED} == {
        98,
        105,
        125,
        126,
        127,
        128,
        129,
    }
    assert all(one.test.counterexample for one in found if one.guard)


def test_of_flexflows_136_algebraic_rules_70_are_right(shared_data: Path) -> None:
    path = shared_data / "compilation/flexflow_graph_subst_3_v2.json.gz"
    rules = [
        rule
        for rule in open_file(path, "auto", WorkloadOptions()).reading.value.rules
        if rule.parallel == "none"
    ]
    found = verdicts(rules, None)
    assert len(found) == 136 and sum(one.usable for one in found) == 70
    reasons = [one.reason for one in found if not one.usable]
    assert sum("does not bind" in reason for reason in reasons) == 56
    assert sum("only 0 shapes" in reason for reason in reasons) == 10
