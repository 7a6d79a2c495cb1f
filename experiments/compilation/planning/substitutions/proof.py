"""Proof of a rule from the axioms by Z3 (TASO, SOSP'19, section 4.2).

Tensors are one uninterpreted sort.

Each operator with its parameters is a function of tensors; the axioms are quantified equations; the negation
of the rule is asserted. ``unsat`` is a proof. Anything else proves nothing: Z3 gives no counterexample here.
The effort is bounded by Z3's own count of steps (``rlimit``), not by time, so that a verdict is the same on
every host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.compilation.planning.substitutions.axioms import AXIOMS, instances, setting_of
from experiments.compilation.planning.substitutions.canonical import outputs_of
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator, Substitution

EFFORT = 2_000_000
PROVED, NOT_PROVED = "proved", "not proved"


def is_provable(rule: Substitution, effort: int = EFFORT) -> bool:
    """Return whether Z3 finds within ``effort`` steps that the axioms imply ``rule``."""
    try:
        import z3
    except ImportError:
        raise BadInput("z3 is not installed", "proof of a rule", "the package z3-solver") from None
    return _Theory(z3, (*rule.source, *rule.target)).implies(rule, effort)


class _Theory:
    """The axioms over the operators that occur in a rule."""

    def __init__(self, z3: Any, operators: Sequence[Operator]) -> None:
        self.z3, self.context = z3, z3.Context()
        self.sort = z3.DeclareSort("Tensor", self.context)
        self.functions: dict[tuple[Any, ...], Any] = {}
        self.solver = z3.Solver(ctx=self.context)
        self.solver.set("auto_config", False)
        self.solver.set("smt.mbqi", False)
        kinds = {operator.kind for operator in operators}
        kinds |= {"ew_add"} if kinds & {"conv2d", "matmul"} else set()  # both are sums over their channels
        for axiom in AXIOMS:
            for statement in instances(axiom, setting_of(operators)):
                if statement.kinds <= kinds:
                    self.solver.add(self._quantify(statement))

    def implies(self, rule: Substitution, effort: int) -> bool:
        variables = self._constants(rule)
        source, target = self._terms(rule.source, variables), self._terms(rule.target, variables)
        different = [source[mine] != target[theirs] for mine, theirs in rule.outputs]
        self.solver.add(self.z3.Or(*different))
        self.solver.set("rlimit", effort)
        return bool(self.solver.check() == self.z3.unsat)

    def _constants(self, rule: Substitution) -> dict[Operand, Any]:
        names = {*rule.variables, *rule.unbound}
        return {v: self.z3.Const(f"t{-v.op}_{v.output}", self.sort) for v in sorted(names)}

    def _quantify(self, statement: Substitution) -> Any:
        variables = self._constants(statement)
        source, target = self._terms(statement.source, variables), self._terms(statement.target, variables)
        ((mine, theirs),) = statement.outputs
        sides = [source[mine]] if theirs.is_variable else [source[mine], target[theirs]]
        return self.z3.ForAll(list(variables.values()), source[mine] == target[theirs], patterns=sides)

    def _terms(self, side: Sequence[Operator], variables: Mapping[Operand, Any]) -> dict[Operand, Any]:
        found = dict(variables)
        for index, operator in enumerate(side):
            for output in range(outputs_of(operator)):
                function = self._function(operator, output)
                found[Operand(index, output)] = function(*(found[operand] for operand in operator.inputs))
        return found

    def _function(self, operator: Operator, output: int) -> Any:
        key = (operator.kind, operator.parameters, output)
        if key not in self.functions:
            sorts = [self.sort] * (len(operator.inputs) + 1)
            self.functions[key] = self.z3.Function(str(key), *sorts)
        return self.functions[key]
