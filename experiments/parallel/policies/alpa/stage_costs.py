"""Every stage on every submesh: the best intra-operator plan over the logical shapes of the submesh, each
solved once.

Source: Zheng et al., "Alpa", OSDI'22, section 5. There every stage is solved, compiled and profiled; here
(``shared``) a stage takes over the division of a longer one that has all its operators where that fits a
device, and is solved on its own where it does not.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from experiments.core.time_limit import time_is_up
from experiments.hardware import Hardware
from experiments.parallel.interface import PlanningEstimate
from experiments.parallel.planning.meshes.mesh import Mesh, mesh_on
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.planning.operators.part_loss import PartLoss
from experiments.parallel.policies.alpa.intra_op import (
    Signature,
    Solved,
    StageProblem,
    keys_of,
    layer_signatures,
)
from experiments.parallel.policies.alpa.strategies import Ways
from experiments.workloads.step import Floats

#: Nodes and devices of each, or rows and columns.
Shape = tuple[int, int]


@dataclass
class StageCostCounts:
    """What the search of stage costs did.

    - ``programs``: integer programs solved.
    - ``reused``: stages that took over a solution.
    - ``variables``, ``rows``: of the largest program.
    - ``unproven``: programs without a proof.
    - ``greedy``: stages divided greedily.
    """

    programs: int = 0
    reused: int = 0
    variables: int = 0
    rows: int = 0
    unproven: int = 0
    infeasible: int = 0
    greedy: int = 0

    def add(self, found: Solved | None) -> None:
        self.programs += 1
        if found is None:
            self.infeasible += 1
            return
        self.variables, self.rows = max(self.variables, found.variables), max(self.rows, found.rows)
        self.unproven += not found.proven


@dataclass(frozen=True)
class OnMesh:
    """A stage's best plan on a submesh."""

    mesh: Mesh
    solved: Solved


def shapes(nodes: int, per_node: int) -> list[Shape]:
    """Return the logical shapes of a submesh: its devices as rows of neighbors.

    A row is at most a node. On one node there are as many rows as columns or more, since there both axes have
    the same links.
    """
    count = nodes * per_node
    widths = [width for width in range(1, per_node + 1) if per_node % width == 0]
    return [(count // width, width) for width in widths if nodes > 1 or width * width <= count]


@dataclass
class StageCosts:
    """The best division of every stage on every submesh, found when it is asked for.

    ``ends``: where runs of layers end that stages are made of; ``samples`` of a micro-batch, ``steps`` of
    them.

    ``programs`` are solved at most, each with so many ``nodes``; stages after them are divided greedily.
    """

    estimate: PlanningEstimate
    cluster: Hardware
    ends: Sequence[int]
    samples: int
    steps: int
    nodes: int
    programs: int = sys.maxsize
    shared: bool = True
    scatter: bool = True
    counts: StageCostCounts = field(default_factory=StageCostCounts)
    ended_for_time: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        model = self.estimate.model
        self.operators = operators_of(model, self.samples)
        self._layers = layer_signatures(self.operators)
        self._keys = keys_of(self.operators, self._layers)
        self.loss = PartLoss(self.estimate, self.samples)
        passes = [self.estimate.pass_seconds(layer, self.samples) for layer in range(len(model))]
        whole = [one.forward + one.backward + one.weight for one in passes]
        self._computing = [whole[operator.layer] * operator.share for operator in self.operators]
        layer_of = np.array([operator.layer for operator in self.operators])
        self._first = np.searchsorted(layer_of, np.arange(len(model) + 1)).tolist()
        self._ways: dict[tuple[Shape, Shape], Ways] = {}
        self._solved: dict[object, Solved | None] = {}
        self._longer: dict[tuple[Shape, Shape], list[Solved]] = {}

    @functools.cached_property
    def state_bytes(self) -> float:
        """Bytes of weights, gradients and optimizer for each byte of weights."""
        return self.estimate.states.total / self.estimate.states.weight

    @property
    def capacity(self) -> float:
        return float(min(device.memory_bytes for device in self.estimate.devices))

    def layers(self, begin: int, end: int) -> range:
        """Return the layers of runs ``begin`` to ``end`` (exclusive)."""
        return range(self.ends[begin - 1] if begin else 0, self.ends[end - 1])

    def span(self, begin: int, end: int) -> range:
        """Return the operators of runs ``begin`` to ``end`` (exclusive)."""
        layers = self.layers(begin, end)
        return range(self._first[layers.start], self._first[layers.stop])

    def best(self, begin: int, end: int, submesh: Shape) -> OnMesh | None:
        """Return the fastest division over the submesh's shapes; ``None`` where nothing fits."""
        found = [
            (solved, shape) for shape in shapes(*submesh) if (solved := self._on(begin, end, submesh, shape))
        ]
        if not found:
            return None
        solved, shape = min(found, key=lambda pair: self.seconds(pair[0]))
        return OnMesh(self._ways[submesh, shape].mesh, solved)

    def seconds(self, solved: Solved) -> float:
        """Return the seconds of a micro-batch, with its part of what is sent once a step."""
        return solved.figures.each + solved.figures.once / self.steps

    def fits(self, solved: Solved, behind: int) -> bool:
        """Return whether a stage fits with a micro-batch held for each stage from this one on."""
        held = min(behind + 1, self.steps)
        return self.state_bytes * solved.figures.weights + held * solved.figures.stash <= self.capacity

    def _on(self, begin: int, end: int, submesh: Shape, shape: Shape) -> Solved | None:
        signature = tuple(self._layers[layer] for layer in self.layers(begin, end) if layer in self._layers)
        short = tuple(self._numbers[layer] for layer in signature)
        name = submesh, shape, short
        if name not in self._solved:
            self._solved[name] = self._solve(begin, end, submesh, shape, short)
        return self._solved[name]

    @functools.cached_property
    def _numbers(self) -> dict[Signature, int]:
        return {signature: number for number, signature in enumerate(dict.fromkeys(self._layers.values()))}

    def _solve(
        self, begin: int, end: int, submesh: Shape, shape: Shape, layers: tuple[int, ...]
    ) -> Solved | None:
        if (submesh, shape) not in self._ways:
            mesh = mesh_on(self.cluster, [("x", shape[0]), ("y", shape[1])], range(shape[0] * shape[1]))
            self._ways[submesh, shape] = Ways(mesh, self.loss, self.scatter)
        self.estimate.show_life()
        span, ways = self.span(begin, end), self._ways[submesh, shape]
        problem = StageProblem(self.operators, span, self._keys, self._computing, ways, self.steps)
        taken = next(self._shared_solutions(problem, submesh, shape), None)
        if taken is not None:
            self.counts.reused += 1
            return taken
        if self.counts.programs and time_is_up():
            self.programs = min(self.programs, self.counts.programs)
            self.ended_for_time = True
        nodes = self.nodes if self.counts.programs < self.programs else 0
        found = problem.solve(self.state_bytes, self.capacity, nodes, self.estimate.progress)
        if nodes:
            self.counts.add(found)
        else:
            self.counts.greedy += 1
        if found is not None:
            self._longer.setdefault((submesh, shape), []).append(found)
        return found

    def _shared_solutions(self, problem: StageProblem, submesh: Shape, shape: Shape) -> Iterator[Solved]:
        """The divisions of longer stages that have all the operators of this one, where they fit."""
        for other in self._longer.get((submesh, shape), ()) if self.shared else ():
            taken = problem.like(other)
            if taken is not None and self.fits(taken, 0):
                yield taken


def tables(
    costs: StageCosts, choices: Sequence[Shape]
) -> tuple[dict[tuple[int, int, int], OnMesh], Floats, npt.NDArray[np.bool_]]:
    """Return plan, seconds and fit of runs i to j on submesh m with s stages behind.

    Both i and j are inclusive.

    Longer stages are solved first: what they find is taken over by shorter ones of the same layers.
    """
    count = len(costs.ends)
    found: dict[tuple[int, int, int], OnMesh] = {}
    seconds = np.full((count, count, len(choices)), np.inf)
    fits = np.zeros((count, count, count, len(choices)), np.bool_)
    spans = sorted(
        itertools.combinations_with_replacement(range(count), 2), key=lambda pair: pair[0] - pair[1]
    )
    for number, (i, j) in enumerate(spans):
        costs.estimate.progress(number / len(spans), "intra-operator plans of stages")
        for m, submesh in enumerate(choices):
            on = costs.best(i, j + 1, submesh)
            if on is not None:
                found[i, j, m] = on
                seconds[i, j, m] = costs.seconds(on.solved)
                fits[:, i, j, m] = [costs.fits(on.solved, behind) for behind in range(count)]
    return found, seconds, fits
