"""Tofu's search: the layouts with the fewest bytes for one split of a training graph, then the same on the
halved graph.

Source: Wang, Huang and Li (Tofu), EuroSys'19, section 5. Coarsening: an operator, its backward operators and
the optimizer's share one decision, a tensor and its gradient one layout, chains of element-wise operators one
layout. What is left is nearly a chain; the dynamic program runs over the layouts of the tensors on each cut
(``planning.operators.enumeration``: the same sums, in the order of the smallest cuts). Recursion: k = k1 k2
..., each factor in turn, the bytes of step i counted for each of the k1 ... k(i-1) groups that carry it out.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.core.budget import Budget
from experiments.parallel.planning.meshes.layouts import WHOLE
from experiments.parallel.planning.operators.enumeration import Table, least_within
from experiments.parallel.policies.tofu.partition_n_reduce import (
    Layout,
    MovedBytes,
    OperatorKernel,
    best_loop,
    bytes_when_divided,
    bytes_when_whole,
    equal_loops,
    kernels,
)
from experiments.workloads.einsum import Operator
from experiments.workloads.step import Floats

#: Entries of an operator's table beyond which it is taken apart.
LARGE_TABLE = 100_000
#: Loops divided by one step, by (operator, kernel); ``""`` where none could be.
Loops = dict[tuple[int, int], str]


@dataclass(frozen=True)
class Split:
    """One step of the recursion: ``workers`` parts in each of ``groups`` groups.

    ``bytes`` are those of one group; ``layouts`` of every tensor; ``moves`` of every (operator, kernel).
    """

    workers: int
    groups: int
    bytes: float
    layouts: tuple[Layout, ...]
    loops: Loops
    moves: dict[tuple[int, int], MovedBytes]

    @property
    def total(self) -> float:
        return self.groups * self.bytes


class TrainingGraph:
    """The kernels of a model and the sizes of its tensors, which shrink from split to split.

    Tensors are the outputs of groups of operators, then parameters; ``tensors[o][a]`` is the tensor of access
    ``a`` of operator ``o`` (-1: an input of the model, which may lie as it likes).
    """

    def __init__(self, operators: Sequence[Operator], counted: bool = True) -> None:
        self.operators = operators
        self.kernels = [list(kernels(operator, counted)) for operator in operators]
        self.sizes: list[list[int]] = []
        self._of_output: list[int] = []
        self._of_parameter: dict[int, int] = {}
        self.tensors = [self._tensor_numbers(operator, counted) for operator in operators]

    def _tensor_numbers(self, operator: Operator, counted: bool) -> tuple[int, ...]:
        reads = [self._operand_number(operator, number) for number in range(len(operator.operands))]
        sizes = [0 if name == "batch" and not counted else operator.size[name] for name in operator.output]
        self._of_output.append(self._follows(operator, sizes))
        return (self._of_output[-1], *reads)

    def _operand_number(self, operator: Operator, number: int) -> int:
        operand = operator.operands[number]
        if operand.source >= 0:
            return self._of_output[operand.source]
        if operand.parameter < 0:
            return -1
        if operand.parameter not in self._of_parameter:
            sizes = [operator.size.get(name, 1) for name in operand.dims]
            self._of_parameter[operand.parameter] = self._tensor(sizes)
        return self._of_parameter[operand.parameter]

    def _follows(self, operator: Operator, sizes: list[int]) -> int:
        """Return the layout of what an element-wise operator reads, which its output takes."""
        for operand in operator.operands:
            alike = operand.source >= 0 and operand.dims == operator.output
            if (
                operator.kind == "elementwise"
                and alike
                and self.sizes[self._of_output[operand.source]] == sizes
            ):
                return self._of_output[operand.source]
        return self._tensor(sizes)

    def _tensor(self, sizes: list[int]) -> int:
        self.sizes.append(sizes)
        return len(self.sizes) - 1

    def layouts(self, tensor: int, workers: int) -> list[Layout]:
        """Return the axes of a tensor with equal pieces of at least one element."""
        axes = [a for a, size in enumerate(self.sizes[tensor]) if size != 1 and size % workers == 0]
        return axes or [WHOLE]

    def split(
        self, workers: int, groups: int = 1, budget: Budget | None = None, most_sums: float = math.inf
    ) -> Split:
        """Return the layouts with the fewest bytes; the graph is that of one worker afterwards.

        Where all layouts together take more than ``most_sums``, tensors keep their most promising ones.
        """
        budget = budget or Budget(sys.maxsize)
        options = [self.layouts(tensor, workers) for tensor in range(len(self.sizes))]
        fresh = itertools.count(len(self.sizes))
        tables = []
        for number in range(len(self.operators)):
            tables += self._tables(number, options, workers, fresh)
            budget.report()
        tables += [((tensor,), np.zeros(len(found))) for tensor, found in enumerate(options)]
        chosen, total, exact = least_within(tables, most_sums, budget)
        budget.ended_early |= not exact
        layouts = tuple(found[chosen[tensor]] for tensor, found in enumerate(options))
        loops, moves = self._loops_and_moves(layouts, workers, budget)
        self._shrink(layouts, loops, workers)
        return Split(workers, groups, total, layouts, loops, moves)

    def _tables(
        self, number: int, options: Sequence[Sequence[Layout]], workers: int, fresh: Iterator[int]
    ) -> list[Table]:
        """Of an operator that reads many tensors, a table for each kernel and access, joined by the kernel's
        loop (a choice of its own, numbered by ``fresh``); of any other a single one.
        """
        if math.prod(len(options[t]) for t in set(self.tensors[number]) if t >= 0) <= LARGE_TABLE:
            return [self._table(number, options, workers)]
        found: list[Table] = []
        for kernel in self.kernels[number]:
            loop_choice, loops = next(fresh), _loops_to_try(kernel, workers)
            for access in {*kernel.reads, kernel.writes}:
                tensor = self.tensors[number][access]
                if tensor >= 0:
                    only = replace(kernel, reads=(access,) if access in kernel.reads else ())
                    rows = [
                        [_alone(only, access, loop, o, workers) for o in options[tensor]] for loop in loops
                    ]
                    found.append(((loop_choice, tensor), np.array(rows)))
        return found

    def _table(self, number: int, options: Sequence[Sequence[Layout]], workers: int) -> Table:
        """Bytes of an operator's kernels over the layouts of its tensors."""
        names = tuple(dict.fromkeys(tensor for tensor in self.tensors[number] if tensor >= 0))
        total: Floats = np.zeros([len(options[name]) for name in names])
        for kernel in self.kernels[number]:
            found = [
                self._sum(number, kernel, loop, options, names, workers)
                for loop in _loops_to_try(kernel, workers)
            ]
            total = total + np.minimum.reduce(found)
        return names, total

    def _sum(
        self,
        number: int,
        kernel: OperatorKernel,
        loop: str,
        options: Sequence[Sequence[Layout]],
        names: tuple[int, ...],
        workers: int,
    ) -> Floats:
        """Every tensor adds its bytes along its own axis of the table."""
        total: Floats = np.zeros([len(options[name]) for name in names])
        for access in {*kernel.reads, kernel.writes}:
            tensor = self.tensors[number][access]
            if tensor < 0:
                continue
            only = replace(kernel, reads=(access,) if access in kernel.reads else ())
            column = [_alone(only, access, loop, layout, workers) for layout in options[tensor]]
            shape = [len(column) if name == tensor else 1 for name in names]
            total = total + np.array(column).reshape(shape)
        return total

    def _layouts_of(self, number: int, layouts: Sequence[Layout]) -> tuple[Layout | None, ...]:
        return tuple(layouts[tensor] if tensor >= 0 else None for tensor in self.tensors[number])

    def _loops_and_moves(
        self, layouts: Sequence[Layout], workers: int, budget: Budget
    ) -> tuple[Loops, dict[tuple[int, int], MovedBytes]]:
        loops: Loops = {}
        moves: dict[tuple[int, int], MovedBytes] = {}
        for number, own in enumerate(self.kernels):
            budget.report()
            given = self._layouts_of(number, layouts)
            for index, kernel in enumerate(own):
                loop = loops[number, index] = best_loop(kernel, given, workers)[1]
                found = (
                    bytes_when_divided(kernel, loop, given, workers)
                    if loop
                    else bytes_when_whole(kernel, given, workers)
                )
                moves[number, index] = found
        return loops, moves

    def _shrink(self, layouts: Sequence[Layout], loops: Loops, workers: int) -> None:
        for tensor, axis in enumerate(layouts):
            if axis != WHOLE:
                self.sizes[tensor][axis] //= workers
        for (number, index), loop in loops.items():
            self.kernels[number][index] = _part(self.kernels[number][index], loop, workers)


def _loops_to_try(kernel: OperatorKernel, workers: int) -> list[str]:
    return equal_loops(kernel, workers) or [""]


def _alone(kernel: OperatorKernel, access: int, loop: str, layout: Layout, workers: int) -> float:
    """What one access adds: as an input if it is one, as the result if it is that."""
    layouts = tuple(layout if number == access else None for number in range(len(kernel.accesses)))
    if kernel.reads:
        found = (
            bytes_when_divided(kernel, loop, layouts, workers)
            if loop
            else bytes_when_whole(kernel, layouts, workers)
        )
        return found.fetched
    return bytes_when_divided(kernel, loop, layouts, workers).sent if loop else 0.0


def _part(kernel: OperatorKernel, loop: str, workers: int) -> OperatorKernel:
    """What one worker does of a kernel whose ``loop`` is divided."""
    if not loop:
        return kernel
    accesses = tuple(
        replace(access, bytes=access.bytes / workers) if loop in access.dims else access
        for access in kernel.accesses
    )
    return replace(kernel, accesses=accesses, loops={**kernel.loops, loop: kernel.loops[loop] // workers})


def recursion(graph: TrainingGraph, factors: Sequence[int], budget: Budget) -> list[Split]:
    """Return one split after another, each with an equal share of the ``budget``."""
    share = budget.most / max(1, len(factors))
    return [graph.split(workers, math.prod(factors[:i]), budget, share) for i, workers in enumerate(factors)]
