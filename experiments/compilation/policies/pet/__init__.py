"""PET (Wang et al., OSDI 2021): partially equivalent transformations with automated corrections.

A part of the graph that is linear in each input (products, convolutions, sums of them) is replaced by a
program that is faster but wrong at some positions, and those are computed again by the original: of several
operators and of products by any program of a few operators (``generator``), of a convolution alone by its
layouts (``mutants``). Which positions are wrong is decided box by box over integers modulo a prime
(``boxes``); a mutant is kept only if, corrections included, the ops' prices say that it is faster. What the
paper leaves open and its code decides badly: elements are not sampled (that misses borders); the right share
that a mutant must reach is the code's 0.7. Biases are added to every element by either program, so that the
linear part alone is compared.
"""

from __future__ import annotations

import functools
import itertools
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.compilation.interface import (
    Applied,
    Draft,
    Graph,
    GraphNode,
    IllTyped,
    Ref,
    RewritePolicy,
    Rewritten,
    Workbench,
)
from experiments.compilation.policies.pet.boxes import MutantVerdict, compare
from experiments.compilation.policies.pet.expressions import Convolution, Image, Shape
from experiments.compilation.policies.pet.lowering import CONVOLUTION, MutantLowering
from experiments.compilation.policies.pet.mutants import Mutant, mutants
from experiments.compilation.policies.pet.several import (
    PartMutants,
    cheapest_program,
    insert_program,
    rule_of,
)
from experiments.compilation.policies.pet.subprograms import Subprogram, subprograms
from experiments.core.budget import ENDED_AT, Budget
from experiments.core.knobs import knob

#: ``stride``, ``padding``, ``dilation``, ``groups`` where a call leaves them out.
DEFAULTS: tuple[Any, ...] = ((1, 1), (0, 0), (1, 1), 1)


@dataclass(frozen=True)
class Pet(RewritePolicy):
    """Replaces linear parts by faster programs that are right almost everywhere, and corrects the rest."""

    name: ClassVar[str] = "pet"
    mechanism: ClassVar[str] = "rewrite the graph"

    depth: int = knob(2, "changes of layout of a mutant", low=1, high=3)
    share: float = knob(0.7, "right positions that a mutant must have", low=0.0, high=1.0)
    beam: int = knob(5, "mutants of a part that are priced", low=1, high=100)
    parts: int = knob(3, "operators of a part of the graph that is mutated as one", low=1, high=4)
    operators: int = knob(3, "operators of a mutant of such a part", low=1, high=4)
    evaluations: int = knob(
        1_000_000, "mutants that are compared before the best so far is taken", low=1, high=10**9
    )
    always: bool = knob(False, "keep the cheapest mutant even where it is no faster")

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        applied: list[Applied] = []
        refused: dict[str, str] = {}
        counts = dict.fromkeys(("parts", "convolutions", "mutants", "equivalent", "priced"), 0.0)
        now, budget = graph, Budget(self.evaluations, bench.progress, "mutants")
        mutants_of = PartMutants(self.operators, budget)
        for part in subprograms(graph, self.parts):
            bench.progress(0.0, f"mutants of what ends in {part.root}")
            changed = self._with_part(now, part, mutants_of, bench, counts)
            if isinstance(changed, str):
                refused[part.root] = changed
                continue
            applied.append(Applied(changed[1], tuple(part.members), _list_added(now, changed[0])))
            now = changed[0]
        taken = {name for step in applied for name in step.took}
        convolutions = [node for node in graph.ops if node.target == CONVOLUTION and node.name not in taken]
        for number, node in enumerate(convolutions):
            bench.progress(number / len(convolutions), f"mutants of {node.name}")
            read = convolution_of(node, graph)
            if isinstance(read, str):
                refused[node.name] = read
                continue
            found = judge_mutants(read, self.depth, budget)
            counts["convolutions"] += 1
            counts["mutants"] += len(found)
            counts["equivalent"] += sum(not verdict.wrong.any() for _, verdict in found)
            kept = [pair for pair in found if pair[1].right_share > self.share][: self.beam]
            counts["priced"] += len(kept)
            best = self._best(now, node, read, kept, bench)
            if best is None:
                refused[node.name] = "no mutant is faster with its corrections" if kept else "no mutant"
                continue
            applied.append(Applied(best[1], (node.name,), _list_added(now, best[0])))
            now = best[0]
        ended_at = budget.caveat("evaluations").get(ENDED_AT, "")
        return Rewritten(now, tuple(applied), refused, counts, ended_at=ended_at)

    def _with_part(
        self,
        graph: Graph,
        found: Subprogram,
        mutants_of: PartMutants,
        bench: Workbench,
        counts: dict[str, float],
    ) -> tuple[Graph, str] | str:
        """Return the graph with the part's cheapest mutant and what was done, or why it is as it was."""
        judged = mutants_of.of(found)
        kept = [pair for pair in judged if pair[1].right_share > self.share][: self.beam]
        counts["parts"] += 1
        counts["mutants"] += len(judged)
        counts["equivalent"] += sum(not verdict.wrong for _, verdict in judged)
        counts["priced"] += len(kept)
        best = cheapest_program(graph, found, kept, bench)
        if best is None or not (self.always or best[0] > 0):
            return "no mutant is faster with its corrections" if kept else "no mutant"
        try:
            return insert_program(graph, found, *best[1], bench), rule_of(found, best[1])
        except IllTyped as error:
            return str(error)

    def _best(
        self,
        graph: Graph,
        node: GraphNode,
        read: Convolution,
        kept: list[tuple[Mutant, MutantVerdict]],
        bench: Workbench,
    ) -> tuple[Graph, str] | None:
        """Return the cheapest graph with one of the mutants in the node's place, and what was done."""
        options = []
        for mutant, verdict in kept:
            try:
                options.append(
                    (insert_mutant(graph, node, read, mutant, verdict, bench), _rule(mutant, verdict))
                )
            except IllTyped:
                continue
        priced = [(bench.cost(option), number) for number, (option, _) in enumerate(options)]
        if not priced or not (self.always or min(priced)[0] < bench.cost(graph)):
            return None
        return options[min(priced)[1]]


def _list_added(before: Graph, after: Graph) -> tuple[str, ...]:
    """Return the ops that one change has made."""
    return tuple(op.name for op in after.ops if op.name not in before.by_name)


def convolution_of(node: GraphNode, graph: Graph) -> Convolution | str:
    """Return the node as an expression, or why it is none."""
    x, weight = (graph.type(ref) for ref in node.refs[:2])
    options: tuple[Any, ...] = (*node.arguments[3:], *DEFAULTS[len(node.arguments[3:]) :])
    stride, padding, dilation, groups = options
    if groups != 1:
        return "convolves groups of channels apart"
    if len(x.shape) != 4:
        return "has no batch"
    if isinstance(padding, str):
        return "names its padding"
    image = Image(_shape(x.shape))
    return Convolution(image, _shape(weight.shape), _pair(stride), _pair(padding), _pair(dilation))


def _pair(value: Any) -> tuple[int, int]:
    return value[0], value[-1]


def _shape(sizes: tuple[int, ...]) -> Shape:
    return sizes[0], sizes[1], sizes[2], sizes[3]


def judge_mutants(
    original: Convolution, depth: int, budget: Budget | None = None
) -> list[tuple[Mutant, MutantVerdict]]:
    """The convolution's mutants with their verdicts, those that are right at the most positions first.

    ``budget`` bounds the mutants that are compared.
    """
    budget = budget or Budget(sys.maxsize)
    within = itertools.takewhile(lambda _: budget.take(), mutants(original, depth))
    found = [(mutant, _verdict(original, mutant)) for mutant in within]
    return sorted(found, key=lambda pair: -pair[1].right_share)


@functools.lru_cache(maxsize=16384)
def _verdict(original: Convolution, mutant: Mutant) -> MutantVerdict:
    """Where the mutant is right, once for all equal convolutions of a model."""
    return compare(original, mutant.program)


def insert_mutant(
    graph: Graph, node: GraphNode, read: Convolution, mutant: Mutant, verdict: MutantVerdict, bench: Workbench
) -> Graph:
    """Return the graph with the mutant and its corrections in the place of the convolution."""
    draft = Draft(graph, bench.types)
    bias = node.refs[2] if len(node.refs) > 2 else None
    lowering = MutantLowering(draft, node.refs[0], node.refs[1], bias)
    result = lowering.lower(mutant.program)
    draft.replace(Ref(node.name), lowering.correct(result, read, verdict.rectangles()))
    return draft.finish()


def _rule(mutant: Mutant, verdict: MutantVerdict) -> str:
    wrong = 1.0 - verdict.right_share
    return f"{mutant}; {wrong:.2%} corrected" if wrong else f"{mutant}; equivalent"
