"""Mutants of parts of a graph: which are right where, which is cheapest, and how it is put in.

PET, OSDI 2021, sections 4 to 6, for sub-programs of several operators and for products.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.compilation.interface import (
    CONSTANT,
    INPUT,
    OUTPUT,
    Draft,
    Graph,
    GraphNode,
    IllTyped,
    Ref,
    Workbench,
)
from experiments.compilation.policies.pet.assembly import ProgramLowering
from experiments.compilation.policies.pet.generator import programs
from experiments.compilation.policies.pet.multilinear import Input, Multilinear
from experiments.compilation.policies.pet.regions import RegionVerdict, compare_programs
from experiments.compilation.policies.pet.subprograms import Subprogram
from experiments.core.budget import Budget

#: A mutant of a part and where it is right.
Judged = tuple[Multilinear, RegionVerdict]


@dataclass
class PartMutants:
    """The mutants of parts, each different part judged once.

    - ``operators``: of a mutant at most.
    - ``budget``: bounds the mutants that are compared.
    """

    operators: int
    budget: Budget
    _known: dict[tuple[Multilinear, frozenset[int]], list[Judged]] = field(default_factory=dict)

    def of(self, found: Subprogram) -> list[Judged]:
        """Return a part's mutants with their verdicts, the right ones first.

        Of equally right ones those come first of which a call computes least.
        """
        constants = frozenset(found.constants)
        if (found.program, constants) not in self._known:
            self._known[found.program, constants] = self._judge(found.program, constants)
        return self._known[found.program, constants]

    def _judge(self, program: Multilinear, constants: frozenset[int]) -> list[Judged]:
        within = itertools.takewhile(lambda _: self.budget.take(), programs(program, self.operators))
        judged = [(mutant, compare_programs(program, mutant)) for mutant in within]
        return sorted(
            judged, key=lambda pair: (-pair[1].right_share, operators_of_a_call(pair[0], constants))
        )


def operators_of_a_call(program: Multilinear, constants: frozenset[int]) -> int:
    """Return the operators that a call carries out: those of constants alone are computed before."""
    if isinstance(program, Input) or set(program.leaves) <= constants:
        return 0
    return 1 + sum(operators_of_a_call(source, constants) for source in program.sources)


def insert_program(
    graph: Graph, found: Subprogram, mutant: Multilinear, verdict: RegionVerdict, bench: Workbench
) -> Graph:
    """Return the graph with the mutant and its corrections in the place of the part, biases behind them."""
    draft = Draft(graph, bench.types)
    lowering = ProgramLowering(draft, found.inputs, found.constants)
    result = lowering.correct(lowering.lower(mutant), found.program, verdict.wrong)
    for bias in found.biases:
        result = draft.op("aten.add.Tensor", result, _align(draft, bias, len(found.program.shape)))
    draft.replace(Ref(found.root), result)
    return draft.finish()


def _align(draft: Draft, bias: Ref, rank: int) -> Ref:
    """Return a bias as it is added: of a convolution one number for each channel."""
    shape = draft.type(bias).shape
    if rank < 4 or len(shape) != 1:
        return bias
    return draft.op("aten.reshape.default", bias, (*shape, 1, 1), once=True)


def alone(graph: Graph, found: Subprogram) -> Graph:
    """Return the part as a graph of its own, so that a mutant's price is that of what it changes."""
    members = set(found.members)
    read = {ref.node for ref in (*found.inputs, *found.biases)} - members
    nodes = [_give(node) for node in graph.nodes if node.name in read]
    kept = [node for node in graph.nodes if node.name in members]
    return Graph((*nodes, *kept, GraphNode("output", OUTPUT, "output", ((Ref(found.root),),))))


def _give(node: GraphNode) -> GraphNode:
    """Return what a part reads as an input of its own."""
    return (
        node
        if node.kind in (INPUT, CONSTANT)
        else GraphNode(node.name, INPUT, node.name, outputs=node.outputs)
    )


def cheapest_program(
    graph: Graph, found: Subprogram, kept: Sequence[Judged], bench: Workbench
) -> tuple[float, Judged] | None:
    """Return the mutant whose part costs least, corrections included: how much less than the part, and it."""
    part = alone(graph, found)
    options: list[tuple[float, Judged]] = []
    for judged in kept:
        try:
            options.append((bench.cost(insert_program(part, found, *judged, bench)), judged))
        except IllTyped:
            continue
    if not options:
        return None
    seconds, judged = min(options, key=lambda option: option[0])
    return bench.cost(part) - seconds, judged


def rule_of(found: Subprogram, judged: Judged) -> str:
    """Return what was done, in words."""
    mutant, verdict = judged
    wrong = 1.0 - verdict.right_share
    return f"{found.program} = {mutant}; {f'{wrong:.2%} corrected' if wrong else 'equivalent'}"
