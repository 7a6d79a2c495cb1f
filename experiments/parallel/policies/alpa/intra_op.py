"""The intra-operator problem of a stage on a mesh: one choice for each kind of operator, by the integer
program.

Source: Zheng et al., "Alpa", OSDI'22, section 4. What is kept for the backward pass is fullest at the end of
the forward pass, when all kept results, weights, gradients and optimizer states are alive: the liveness
constraint of that moment is the one written (workspace is not counted, as in the simulator).
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.core.progress import Progress, silent
from experiments.parallel.planning.meshes.partition import OperatorPartition, weight_layouts
from experiments.parallel.policies.alpa.choice_program import ChoiceProblem, ChoiceSolution, greedy, solve
from experiments.parallel.policies.alpa.strategies import Costs, Read, Table, Ways, leads
from experiments.workloads.einsum import Operator
from experiments.workloads.step import Floats

#: What an operator is, for two to be equal: its kind, sizes and figures, with its place in its layer.
Signature = tuple[object, ...]


def layer_signatures(operators: Sequence[Operator]) -> dict[int, Signature]:
    """Return for each layer what its operators are, with sources counted within the layer."""
    first: dict[int, int] = {}
    rows: dict[int, list[object]] = defaultdict(list)
    for number, operator in enumerate(operators):
        first.setdefault(operator.layer, number)
        rows[operator.layer].append(_signature(operator, first[operator.layer]))
    return {layer: tuple(row) for layer, row in rows.items()}


def keys_of(operators: Sequence[Operator], layers: Mapping[int, Signature]) -> list[Signature]:
    """Return for each operator its layer's signature and its place in the layer.

    They are short, so that they compare quickly.
    """
    short = {signature: number for number, signature in enumerate(dict.fromkeys(layers.values()))}
    places: Counter[int] = Counter()
    found: list[Signature] = []
    for operator in operators:
        found.append((short[layers[operator.layer]], places[operator.layer]))
        places[operator.layer] += 1
    return found


def _signature(operator: Operator, first: int) -> Signature:
    read = tuple((o.dims, o.bytes, max(o.source - first, -1), o.parameter >= 0) for o in operator.operands)
    share = round(operator.share, 9)
    return operator.kind, operator.sizes, operator.output, read, operator.output_bytes, share


@dataclass(frozen=True)
class Figures:
    """Seconds and bytes of a stage under a choice.

    Seconds of a micro-batch, of gradients once a step, bytes of weights and kept results.
    """

    each: float
    once: float
    weights: float
    stash: float


@dataclass(frozen=True)
class Solved:
    """The partition of every operator of a stage, and its figures.

    In order, and for each kind (its first); with the program's size.
    """

    partitions: tuple[OperatorPartition, ...]
    kinds: Mapping[Signature, OperatorPartition]
    figures: Figures
    proven: bool
    variables: int
    rows: int


class StageProblem:
    """The division of a stage's operators over a mesh.

    The operators are ``span`` of a model's.

    ``keys``: equal for equal operators; ``computing``: seconds of each for a micro-batch on one device;
    ``steps``: micro-batches of a step.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        span: range,
        keys: Sequence[Signature],
        computing: Sequence[float],
        ways: Ways,
        steps: int,
    ) -> None:
        self._all, self._span, self._keys = operators, span, keys
        self._computing, self._ways, self._steps = computing, ways, steps
        self._leader: dict[int, int] = {}
        self._table: dict[int, Table] = {}
        self._nodes: dict[Signature, int] = {}
        self._choices: list[Table] = []
        for number in span:
            self._place(number)
        self.costs = self._node_costs()

    # --- who chooses
    # ------------------------------------------------------------------------------------------

    def _place(self, number: int) -> None:
        """A light operator follows the operand made last in the stage; others choose, equal ones alike."""
        operator, key = self._all[number], self._keys[number]
        last = None if leads(operator) else self._read_last(number)
        if last is not None:
            self._leader[number] = self._leader[last.source]
            leader = self._table[last.source]
            self._table[number] = self._ways.following(key, operator, last.plain, leader)
            return
        if key not in self._nodes:
            self._nodes[key] = len(self._choices)
            self._choices.append(self._ways.own(key, operator, self._limits(operator)))
        self._leader[number] = self._nodes[key]
        self._table[number] = self._choices[self._nodes[key]]

    def _read_last(self, number: int) -> Read | None:
        """What was made last of all that the operator reads inside the stage."""
        reads = self._ways.reads(number, self._all[number])
        last = max(reads, key=lambda read: read.source, default=None)
        return last if last is not None and last.source >= self._span.start else None

    def _limits(self, operator: Operator) -> dict[str, int]:
        """Sizes of its loops as the makers of its operands have them."""
        found: dict[str, int] = {}
        for operand in operator.operands:
            if operand.source >= 0:
                maker = self._all[operand.source]
                for name, made in zip(operand.dims, maker.output, strict=True):
                    if name:
                        found[name] = math.gcd(found.get(name, maker.size[made]), maker.size[made])
        return found

    def _internal_reads(self) -> Iterator[tuple[int, Read]]:
        """What is made inside the stage, and who reads it."""
        for number in self._span:
            for read in self._ways.reads(number, self._all[number]):
                if read.source >= self._span.start:
                    yield number, read

    # --- what it costs
    # ----------------------------------------------------------------------------------------

    def _node_costs(self) -> list[Costs]:
        """A tied parameter counts with its first operator."""
        found = [Costs(*(np.zeros(len(table)) for _ in range(4))) for table in self._choices]
        seen: set[int] = set()
        for number in self._span:
            one = self._ways.costs(
                self._keys[number], self._all[number], self._table[number], self._computing[number]
            )
            held = self._ways.held(number, self._all[number])
            if held & seen:
                one = replace(one, weights=one.weights * 0, once=one.once * 0)
            seen |= held
            found[self._leader[number]].add(one)
        return found

    @functools.cached_property
    def edges(self) -> dict[tuple[int, int], Floats]:
        """Matrices between leaders; what is between operators of one leader is on the diagonal of its own."""
        siblings = Counter(
            read.alike for number, read in self._internal_reads() if not self._all[number].light
        )
        found: dict[tuple[int, int], Floats] = {}
        for number, read in self._internal_reads():
            operator, source = self._all[number], read.source
            alike = 1 if operator.light else siblings[read.alike]
            matrix = self._ways.resharding_seconds(
                self._keys[number], operator, read, self._table[source], self._table[number], alike
            )
            pair = self._leader[source], self._leader[number]
            if pair[0] > pair[1]:
                pair, matrix = (pair[1], pair[0]), matrix.T
            found[pair] = found[pair] + matrix if pair in found else matrix
        return found

    # --- the program
    # ------------------------------------------------------------------------------------------

    def solve(self, states: float, capacity: float, nodes: int, progress: Progress = silent) -> Solved | None:
        """Return the best partition of the stage, or the greedy one without ``nodes``.

        ``states``: bytes of weights, gradients and optimizer for each byte of weights.

        ``None`` where nothing fits.
        """
        memory = [c.weights * states + c.stash for c in self.costs]
        if sum(float(column.min()) for column in memory) > capacity:
            return None
        problem = self._problem(memory, capacity)
        found = (solve(problem, nodes, progress) if nodes else None) or self._fallback(problem)
        return None if found is None else self._solution(found)

    def like(self, other: Solved) -> Solved | None:
        """Return this stage with every kind of operator divided as in another; else ``None``.

        There is none where a kind is not there.
        """
        chosen = []
        for key, node in self._nodes.items():
            if other.kinds.get(key) not in self._choices[node]:
                return None
            chosen.append(self._choices[node].index(other.kinds[key]))
        return self._solution(ChoiceSolution(tuple(chosen), 0.0, other.proven, 0, 0))

    def _figures(self, chosen: Sequence[int]) -> Figures:
        each = sum(float(c.each[chosen[v]]) for v, c in enumerate(self.costs))
        each += sum(float(m[chosen[u], chosen[v]]) for (u, v), m in self.edges.items())
        others = [
            sum(float(getattr(c, name)[chosen[v]]) for v, c in enumerate(self.costs))
            for name in ("once", "weights", "stash")
        ]
        return Figures(each, *others)

    def _problem(self, memory: Sequence[Floats], capacity: float) -> ChoiceProblem:
        nodes, edges = [], dict(self.edges)
        for v, c in enumerate(self.costs):
            own = np.diag(edges.pop((v, v))) if (v, v) in edges else 0.0
            nodes.append(c.each + c.once / self._steps + own)
        return ChoiceProblem(nodes, edges, memory, capacity, self._tied_operators())

    def _tied_operators(self) -> list[tuple[int, int, Sequence[object], Sequence[object]]]:
        """Operators that share a parameter and do not choose together keep it in one layout."""
        holders: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        for number in self._span:
            for place, operand in enumerate(self._all[number].parameters):
                holders[operand.parameter].setdefault(self._leader[number], (number, place))
        found: list[tuple[int, int, Sequence[object], Sequence[object]]] = []
        for places in holders.values():
            (first, own), *others = places.items()
            found += [(first, node, self._labels(*own), self._labels(*held)) for node, held in others]
        return found

    def _labels(self, number: int, place: int) -> list[object]:
        return [_label(self._all[number], partition, place) for partition in self._table[number]]

    def _fallback(self, problem: ChoiceProblem) -> ChoiceSolution | None:
        """Nothing within the nodes allowed: the greedy choice, where it fits."""
        chosen = greedy(problem)
        if problem.bytes(chosen) > problem.capacity:
            return None
        return ChoiceSolution(tuple(chosen), problem.cost(chosen), False, 0, 0)

    def _solution(self, found: ChoiceSolution) -> Solved:
        chosen = found.choices
        return Solved(
            tuple(self._table[number][chosen[self._leader[number]]] for number in self._span),
            {self._keys[n]: self._table[n][chosen[self._leader[n]]] for n in reversed(self._span)},
            self._figures(chosen),
            found.proven,
            found.variables,
            found.rows,
        )


def _label(operator: Operator, partition: OperatorPartition, place: int) -> object:
    """How a parameter is divided, whatever its dimensions are called here: dimension size by axis."""
    operand, layout = list(weight_layouts(operator, partition))[place]
    sizes = sorted(operand.dims, key=lambda name: operator.size.get(name, 1))
    return tuple(sizes.index(operand.dims[entry]) if entry >= 0 else entry for entry in layout)
