"""Graph substitutions as data: what a file of rewrite rules holds (TASO, SOSP'19; Unity, OSDI'22), not yet
judged.

A rule has two small operator graphs over shared variables. An operand with ``op >= 0`` is an output of an
earlier operator of the same side; ``op < 0`` is a variable, and the same pair (op, output) on both sides is
the same tensor. ``outputs`` says which tensor of the target stands for which of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from experiments.core.errors import BadInput

MOST_RULES = 20_000
MOST_OPERATORS = 16
MOST_INPUTS = 16
#: Inputs of all operators of a file; the published files have 1,461 and 5,038.
MOST_OPERANDS = 200_000
#: Operators that move data among devices and compute nothing (Unity, section 4.1).
PARALLEL = ("partition", "combine", "replicate", "reduce")


@dataclass(frozen=True, order=True)
class Operand:
    """A tensor of one side of a rule: output ``output`` of operator ``op``, or a variable (``op < 0``)."""

    op: int
    output: int = 0

    @property
    def is_variable(self) -> bool:
        return self.op < 0


@dataclass(frozen=True)
class Operator:
    """One operator of a substitution rule.

    ``kind`` is the published name in lower case (``conv2d``); ``parameters`` its integers by name, in file
    order.
    """

    kind: str
    inputs: tuple[Operand, ...]
    parameters: tuple[tuple[str, int], ...] = ()

    def parameter(self, name: str, default: int | None = None) -> int:
        for known, value in self.parameters:
            if known == name:
                return value
        if default is None:
            raise BadInput(f"{self.kind} has no {name}", "rule", f"a parameter {name}")
        return default


@dataclass(frozen=True)
class Substitution:
    """One rule: ``source`` may be replaced by ``target``; ``outputs`` pairs (tensor of source, of target)."""

    name: str
    source: tuple[Operator, ...]
    target: tuple[Operator, ...]
    outputs: tuple[tuple[Operand, Operand], ...]

    @property
    def variables(self) -> tuple[Operand, ...]:
        """The variables that matching the source binds."""
        return variables_of(self.source)

    @property
    def unbound(self) -> tuple[Operand, ...]:
        """Variables that only the target reads: such a rule cannot be applied."""
        return tuple(sorted(set(variables_of(self.target)) - set(self.variables)))

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(operator.kind for operator in (*self.source, *self.target))

    @property
    def parallel(self) -> str:
        """Which of its operators are parallel ones: ``none``, ``some`` or ``all``."""
        held = [kind in PARALLEL for kind in self.kinds]
        return "all" if all(held) else "some" if any(held) else "none"


def variables_of(side: Sequence[Operator]) -> tuple[Operand, ...]:
    return tuple(sorted({operand for operator in side for operand in operator.inputs if operand.is_variable}))


@dataclass(frozen=True)
class Substitutions:
    """The rules of one file."""

    name: str
    rules: tuple[Substitution, ...]

    def census(self) -> dict[str, Counter[str]]:
        """Count the rules by their operators, outputs, parallel operators, and whether all can be bound."""
        return {
            "operators": Counter(f"{len(rule.source)}->{len(rule.target)}" for rule in self.rules),
            "mapped outputs": Counter(str(len(rule.outputs)) for rule in self.rules),
            "parallel operators": Counter(rule.parallel for rule in self.rules),
            "bindable": Counter("no" if rule.unbound else "yes" for rule in self.rules),
        }


def collect_substitutions(name: str, rules: Iterable[Substitution]) -> Substitutions:
    """The rules of the file ``name``; ``BadInput`` as soon as they are more than are read."""
    kept: list[Substitution] = []
    operands = 0
    for rule in rules:
        operands += sum(len(operator.inputs) for operator in (*rule.source, *rule.target))
        if operands > MOST_OPERANDS:
            raise BadInput(
                f"more than {MOST_OPERANDS} inputs of operators, at rule {len(kept)}", name, "a smaller file"
            )
        kept.append(rule)
    return Substitutions(name, tuple(kept))


def check_substitution(rule: Substitution, where: str) -> Substitution:
    """``rule`` if both its sides are graphs and its outputs exist; ``BadInput`` names what is not."""
    for title, side, least in (("source", rule.source, 1), ("target", rule.target, 0)):
        if not least <= len(side) <= MOST_OPERATORS:
            raise BadInput(f"{title} of {len(side)} operators", where, f"{least} to {MOST_OPERATORS}")
        for index, operator in enumerate(side):
            _check_operator(operator, index, f"{where}: {title} operator {index}")
    bound = frozenset(rule.variables)
    for mine, theirs in _pairs(rule, where):
        for side, operand in ((rule.source, mine), (rule.target, theirs)):
            if side is rule.target and operand in bound:
                continue
            if not 0 <= operand.op < len(side) or not 0 <= operand.output < MOST_INPUTS:
                raise BadInput(f"maps output {operand.output} of operator {operand.op}", where, "an operator")
    return rule


def _check_operator(operator: Operator, index: int, where: str) -> None:
    if not 1 <= len(operator.inputs) <= MOST_INPUTS:
        raise BadInput(f"{operator.kind} of {len(operator.inputs)} inputs", where, f"1 to {MOST_INPUTS}")
    for operand in operator.inputs:
        if operand.op >= index or not 0 <= operand.output < MOST_INPUTS:
            raise BadInput(
                f"reads output {operand.output} of operator {operand.op}", where, "an earlier operator"
            )
    names = [name for name, _ in operator.parameters]
    if len(set(names)) < len(names):
        raise BadInput("a parameter twice", where, "each parameter once")


def _pairs(rule: Substitution, where: str) -> Iterator[tuple[Operand, Operand]]:
    if not rule.outputs or len({mine for mine, _ in rule.outputs}) < len(rule.outputs):
        raise BadInput("no outputs mapped, or one twice", where, "each mapped output once")
    yield from rule.outputs
