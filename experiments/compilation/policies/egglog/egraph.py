"""Terms in an e-graph of egglog.

Classes of equal terms, and all matches of rules modulo what is known to be equal.

A term of ``rules.terms`` is an e-node ``(A<arity> op x...)`` whose class also holds ``(N number)``; the
function ``number`` names a class by its lowest term. Each rule's source becomes a conjunctive query, whose
answers are the classes that its variables are bound to; egglog joins, and keeps equality closed under
congruence. (egg: Willsey et al., POPL'21; egglog: Zhang et al., PLDI'23.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.compilation.planning.substitutions.matcher import COMMUTATIVE
from experiments.compilation.planning.substitutions.pattern import Match, Pattern
from experiments.compilation.planning.substitutions.terms import Term, Terms
from experiments.compilation.policies.egglog.ordering import exchangeable, wanted_orders
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator, Substitution

PREAMBLE = """
(datatype T (N i64))
(function number (T) i64 :merge (min old new))
(function named (i64) i64 :merge (min old new))
(function last (T) i64 :merge (min old new))
(relation Single (T))
(relation Convolution (i64))
(relation Next (i64 i64))
(ruleset naming)
(ruleset matching)
(rule ((= e (N k))) ((set (number e) k)) :ruleset naming)
(rule ((= e (N k)) (= n (number e))) ((set (named k) n)) :ruleset naming)
(rule ((Single e) (= n (number e))) ((set (last e) n)) :ruleset naming)
"""
#: Lines of a program that are parsed together.
AT_ONCE = 32
#: An e-node: kind, data and the classes that it reads.
Key = tuple[str, Any, tuple[int, ...]]


def bindings() -> Any:
    try:
        import egglog.bindings
    except ImportError:
        raise BadInput("egglog is not installed", "the policy egglog", "the package egglog") from None
    return egglog.bindings


class EGraph:
    """E-graph of all ``terms`` with the equalities asserted (``unite``).

    Terms that are made later are added by ``grow``.
    """

    def __init__(self, terms: Terms, patterns: Sequence[Pattern]) -> None:
        self.terms, self.patterns = terms, patterns
        self._egglog = bindings().EGraph()
        self._codes: dict[tuple[str, Any], int] = {}
        self._arities: set[int] = set()
        self.held = 0
        self.given = len(terms)
        self._classes: list[int] = []
        self._nodes: dict[Key, int] = {}
        self._seen: set[tuple[int, tuple[int, ...]]] = set()
        self._wanted = wanted_orders(terms)
        #: Classes that are joined in this order because the input graph joins what is made of them in this
        #: order.
        self.follow: set[tuple[int, int]] = set()
        self._run(PREAMBLE)
        self._run("\n".join(self._query(place, one.rule) for place, one in enumerate(patterns)))

    def _run(self, program: str) -> None:
        """Some lines at a time: every place that the parser keeps holds the whole text that it was given."""
        lines = program.strip().splitlines()
        for start in range(0, len(lines), AT_ONCE):
            self._egglog.run_program(*self._egglog.parse_program("\n".join(lines[start : start + AT_ONCE])))

    def _query(self, place: int, rule: Substitution) -> str:
        """Return the rule's source as a conjunctive query whose answers become rows of ``Found<place>``."""
        facts, codes = [], []
        for index, operator in enumerate(rule.source):
            code = str(self._code(operator.kind, data_of(operator)))
            if operator.kind == "conv2d":
                code = f"c{index}"
                codes.append(code)
                facts.append(f"(Convolution {code})")
            inputs = " ".join(_name(operand) for operand in operator.inputs)
            facts.append(f"(= o{index} ({self._constructor(len(operator.inputs))} {code} {inputs}))")
        facts += [f"(= n{_tail(v)} (number {_name(v)}))" for v in rule.variables]
        roots = sorted({mine.op for mine, _ in rule.outputs})
        facts += [f"(!= o{a} o{b})" for a, b in itertools.combinations(roots, 2)]
        orders = [""]
        pair = exchangeable(rule)
        if pair:
            facts += [f"(Single {_name(pair[1])})", f"(= end (last {_name(pair[0])}))"]
            orders = [f"({order} end n{_tail(pair[1])})" for order in ("<", "Next")]
        columns = [*(f"n{_tail(v)}" for v in rule.variables), *codes]
        relation = f"(relation Found{place} ({' '.join(['i64'] * len(columns))}))"
        found = f"((Found{place} {' '.join(columns)})) :ruleset matching)"
        return "\n".join([relation, *(f"(rule ({' '.join([*facts, order])}) {found}" for order in orders)])

    def _code(self, kind: str, data: Any) -> int:
        return self._codes.setdefault((kind, data), len(self._codes))

    def _constructor(self, arity: int) -> str:
        """Return the constructor of e-nodes with so many inputs, declared when first used."""
        if arity not in self._arities:
            self._arities.add(arity)
            self._run(f"(constructor A{arity} (i64{' T' * arity}) T)")
        return f"A{arity}"

    def grow(self) -> None:
        """Takes in the terms made since the last time, and closes equality under congruence."""
        lines = [line for n in range(self.held, len(self.terms)) for line in self._written(self.terms[n])]
        self.held = len(self.terms)
        self._run("\n".join([*lines, "(run-schedule (saturate naming))"]))
        names = self._egglog.freeze().functions["named"].rows
        self._classes = [
            value for _, value in sorted((self._whole(r.inputs[0]), self._whole(r.output)) for r in names)
        ]
        self._nodes = {}
        for number in range(self.held):
            self._nodes.setdefault(self.key(number), number)
        self.follow = {(self._classes[first], self._classes[second]) for first, second in self._wanted}
        self._run("\n".join(f"(Next {first} {second})" for first, second in sorted(self.follow)))

    def _written(self, term: Term) -> Iterator[str]:
        code = self._code(term.kind, term.data)
        orders = {term.inputs, term.inputs[::-1]} if term.kind in COMMUTATIVE else {term.inputs}
        for inputs in sorted(orders):
            node = f"({self._constructor(len(inputs))} {code} {' '.join(f'(N {n})' for n in inputs)})"
            yield f"(union (N {term.number}) {node})"
        if term.kind == "conv2d":
            yield f"(Convolution {code})"
        if term.kind != "concat" or term.number < self.given:
            yield f"(Single (N {term.number}))"
        else:
            yield f"(set (last (N {term.number})) {self._last(term)})"

    def _last(self, term: Term) -> int:
        """Return the number of the last tensor of a join."""
        source = self.terms[term.inputs[-1]]
        again = source.kind == "concat" and source.number >= self.given
        if again:
            return self._last(source)
        return self._classes[source.number] if source.number < len(self._classes) else source.number

    def unite(self, pairs: Mapping[int, int]) -> None:
        """Tells that the two terms of each pair are equal; classes change with the next ``grow``."""
        self._run("\n".join(f"(union (N {first}) (N {second}))" for first, second in pairs.items()))

    def _whole(self, value: Any) -> int:
        return int(self._egglog.value_to_i64(value))

    def class_of(self, number: int) -> int:
        """Return the lowest term that is known to be equal."""
        return self._classes[number]

    def key(self, number: int) -> Key:
        """Return the e-node of a term: equal keys are one e-node."""
        term = self.terms[number]
        inputs = [self._classes[source] for source in term.inputs]
        return term.kind, term.data, tuple(sorted(inputs) if term.kind in COMMUTATIVE else inputs)

    def distinct(self) -> list[int]:
        """One term for each e-node, that is live data and not a constant's.

        In the order in which they were made.
        """
        return sorted(number for number in self._nodes.values() if not self.terms[number].free)

    def matches(self) -> list[Match]:
        """Return the matches that were not there when last asked, by rule, then by terms."""
        self._run("(run-schedule (run matching))")
        functions = self._egglog.freeze().functions
        found = []
        for place, one in enumerate(self.patterns):
            rows = {self._current(one, row.inputs) for row in functions[f"Found{place}"].rows}
            found += [self._match(one, row) for row in sorted(rows) if (place, row) not in self._seen]
            self._seen |= {(place, row) for row in rows}
        return found

    def _current(self, one: Pattern, values: Sequence[Any]) -> tuple[int, ...]:
        """Return a row with the names that its classes have now.

        A row of before a union may name one that was merged.
        """
        row = [self._whole(value) for value in values]
        bound = len(one.rule.variables)
        return (*(self.class_of(number) for number in row[:bound]), *row[bound:])

    def _match(self, one: Pattern, row: Sequence[int]) -> Match:
        """Return the terms of all operators, from the classes of variables and the codes of convolutions."""
        bound: dict[Operand, int] = dict(zip(one.rule.variables, row, strict=False))
        datas = {code: data for (kind, data), code in self._codes.items() if kind == "conv2d"}
        codes = iter(row[len(bound) :])
        for index, operator in enumerate(one.rule.source):
            data = datas[next(codes)] if operator.kind == "conv2d" else data_of(operator)
            inputs = [self.class_of(bound[operand]) for operand in operator.inputs]
            ordered = tuple(sorted(inputs) if operator.kind in COMMUTATIVE else inputs)
            bound[Operand(index)] = self._nodes[operator.kind, data, ordered]
        return Match(one, tuple(bound.items()))


def data_of(operator: Operator) -> Any:
    """Return the data of the terms that the operator matches; a convolution matches several."""
    return operator.parameter("axis") if operator.kind == "concat" else None


def _name(operand: Operand) -> str:
    return f"v{_tail(operand)}" if operand.is_variable else f"o{operand.op}"


def _tail(variable: Operand) -> str:
    return f"{-variable.op}_{variable.output}"
