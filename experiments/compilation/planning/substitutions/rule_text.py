"""Rules as text, for people and for files.

``matmul(a, b), matmul(a, c) => split[axis=-1](matmul(a, concat[axis=-1](b, c)))``.

Both sides list the mapped tensors in the same order. A tensor is a variable, or
``kind[parameters](tensors)``, with ``.1`` behind it for the second output of a split; an operator with
several outputs that stands without ``.n`` in the list stands for all of them. Equal text is one operator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.compilation.planning.substitutions.canonical import outputs_of
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator, Substitution, check_substitution

_TOKEN = re.compile(r"\s*([a-z_][a-z_0-9]*|-?\d+|=>|[\[\](),=.])")


def rule_text(rule: Substitution) -> str:
    names: dict[Operand, str] = {}
    sides = []
    for side, tensors in (
        (rule.source, [mine for mine, _ in rule.outputs]),
        (rule.target, [theirs for _, theirs in rule.outputs]),
    ):
        sides.append(", ".join(_text(side, tensor, names) for tensor in tensors))
    return " => ".join(sides)


def _text(side: Sequence[Operator], tensor: Operand, names: dict[Operand, str]) -> str:
    if tensor.is_variable:
        return names.setdefault(tensor, chr(ord("a") + len(names) % 26))
    operator = side[tensor.op]
    inputs = ", ".join(_text(side, operand, names) for operand in operator.inputs)
    parameters = ",".join(f"{name}={value}" for name, value in operator.parameters)
    suffix = f".{tensor.output}" if outputs_of(operator) > 1 else ""
    return f"{operator.kind}{f'[{parameters}]' if parameters else ''}({inputs}){suffix}"


def parse_rule(text: str, name: str = "rule") -> Substitution:
    """Return the rule that ``text`` spells; ``BadInput`` names the place where it does not."""
    parser = _Parser(text, name)
    source, mine = parser.side()
    parser.expect("=>")
    target, theirs = parser.side()
    if parser.peek():
        raise parser.wrong("the end")
    if len(mine) != len(theirs):
        raise BadInput(f"{len(mine)} tensors become {len(theirs)}", name, "as many on both sides")
    return check_substitution(Substitution(name, source, target, tuple(zip(mine, theirs, strict=True))), name)


class _Parser:
    """Recursive descent over the tokens of one rule; variables are shared by its two sides."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.position = text, name, 0
        self.variables: dict[str, Operand] = {}
        self.operators: list[Operator] = []

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        return found[1] if found else self.text[self.position :].strip()[:20]

    def take(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        if not found:
            raise self.wrong("a name, a number or a sign")
        self.position = found.end()
        return found[1]

    def expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise self.wrong(repr(sign))
        self.take()

    def wrong(self, wanted: str) -> BadInput:
        return BadInput(f"{self.peek()!r} at character {self.position}", self.name, wanted)

    def side(self) -> tuple[tuple[Operator, ...], list[Operand]]:
        self.operators = []
        tensors = self.tensor()
        while self.peek() == ",":
            self.take()
            tensors += self.tensor()
        return tuple(self.operators), tensors

    def tensor(self) -> list[Operand]:
        """One tensor, or all outputs of an operator that has several and names none."""
        name = self.take()
        if self.peek() not in ("(", "["):
            return [self.variables.setdefault(name, Operand(-1 - len(self.variables)))]
        parameters = self.parameters() if self.peek() == "[" else ()
        operator = Operator(name, self.inputs(), parameters)
        if operator not in self.operators:
            self.operators.append(operator)
        index = self.operators.index(operator)
        if self.peek() != ".":
            return [Operand(index, output) for output in range(outputs_of(operator))]
        self.take()
        return [Operand(index, self.number())]

    def parameters(self) -> tuple[tuple[str, int], ...]:
        found = []
        while self.peek() in ("[", ","):
            self.take()
            name = self.take()
            self.expect("=")
            found.append((name, self.number()))
        self.expect("]")
        return tuple(found)

    def number(self) -> int:
        token = self.take()
        if not token.removeprefix("-").isdigit() or len(token) > 10:
            raise self.wrong("a small number")
        return int(token)

    def inputs(self) -> tuple[Operand, ...]:
        self.expect("(")
        found = self.tensor()
        while self.peek() == ",":
            self.take()
            found += self.tensor()
        self.expect(")")
        return tuple(found)
