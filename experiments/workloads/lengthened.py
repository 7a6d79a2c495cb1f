"""A step with more of the equal blocks that one of its modules holds, without a capture of all of them.

Blocks ``<module>.0``, ``<module>.1`` ... of a captured step are alike but for the first ones and the last. Op
by op, what block ``PATTERN + 1`` reads and writes is what block ``PATTERN`` does, one block on. Copies of the
pattern come between the two: after it in the forward pass, before it in the backward pass, after it in the
update, as a capture of the longer model has them; ops and tensors get the numbers and names of such a
capture.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import Step

#: The block that is copied, and how few blocks a step may have to be lengthened.
PATTERN, FEWEST = 2, 5
#: A tensor of the longer step: one of the chain of tensors that begins with a tensor of the short step, so
#: many blocks on; ``None`` where it belongs to no chain.
Place = tuple[int, int | None]


def lengthen(step: Step, module: str, more: int, weights: Mapping[str, int] | None = None) -> Step:
    """Return ``step`` with ``more`` further blocks in ``module``, of which it has ``FEWEST`` or more.

    ``weights`` says how many each parameter holds, where those are not its elements.
    """
    return _Longer(step, _Blocks(step, module), more, weights or {}).step() if more else step


class _Blocks:
    """Which ops are whose, and the tensors one block on: ``following`` of the pattern's."""

    def __init__(self, step: Step, module: str) -> None:
        self.step = step
        self.number = re.compile(rf"(?:^|(?<=\.)){re.escape(module)}\.(\d+)(?=\.|$)")
        self.of_op = [self.of(name) for name in step.ops.module]
        count = 1 + max((block for block in self.of_op if block is not None), default=-1)
        if count < FEWEST:
            raise BadInput(f"{count} blocks in {module!r}", step.name, f"{FEWEST} or more")
        self.pattern, self.after = self._ops(PATTERN), self._ops(PATTERN + 1)
        self.following = self._following(module)

    def of(self, name: str) -> int | None:
        """The block that an op's module or a tensor's name lies in."""
        found = self.number.search(name)
        return int(found.group(1)) if found else None

    def renamed(self, name: str, by: int) -> str:
        """``name`` as of the block so many on."""
        return self.number.sub(lambda found: _with_number(found, by), name)

    def _ops(self, block: int) -> list[int]:
        return [op for op, number in enumerate(self.of_op) if number == block]

    def _following(self, module: str) -> dict[int, int]:
        step, found = self.step, dict[int, int]()
        same = [step.ops.target[op] for op in self.pattern] == [step.ops.target[op] for op in self.after]
        for op, later in zip(self.pattern, self.after, strict=False):
            for rows in (step.inputs, step.outputs):
                here, there = rows[op].tolist(), rows[later].tolist()
                same &= len(here) == len(there)
                same &= all(found.setdefault(a, b) == b for a, b in zip(here, there, strict=False))
        if not same:
            raise BadInput(f"blocks of {module!r} differ", step.name, "equal ones from the third on")
        return found

    @functools.cached_property
    def chains(self) -> dict[int, tuple[int, int]]:
        """For each tensor of a chain its first one and how many blocks on it is.

        What all blocks share has none.
        """
        follows = {b: a for a, b in self.following.items() if a != b}
        found = {}
        for tensor in {*follows, *follows.values()}:
            first, steps = tensor, 0
            while first in follows:
                first, steps = follows[first], steps + 1
            found[tensor] = first, steps
        return found


def _with_number(found: re.Match[str], by: int) -> str:
    whole, number = found.group(0), found.group(1)
    return whole[: -len(number)] + str(int(number) + by)


@dataclass(frozen=True)
class _Row:
    """An op of the longer step: ``op`` of the short one, its tensors and its module ``by`` blocks on."""

    op: int
    by: int


class _Longer:
    """The longer step under construction."""

    def __init__(self, short: Step, blocks: _Blocks, more: int, weights: Mapping[str, int]) -> None:
        self.short, self.blocks, self.more, self.weights = short, blocks, more, weights
        self.rows = list(self._rows())

    def step(self) -> Step:
        numbers = self._numbers()
        inputs, outputs = (
            Ragged.of(
                [numbers[self._place(tensor, row.by)] for tensor in found[row.op].tolist()]
                for row in self.rows
            )
            for found in (self.short.inputs, self.short.outputs)
        )
        names = _count_anew([self.short.ops.name[row.op] for row in self.rows])
        ops = _take_rows(self.short.ops, [row.op for row in self.rows])
        ops |= {"name": names, "module": self._modules()}
        tensors = _take_rows(self.short.tensors, [self._original(place) for place in numbers])
        tensors |= {"name": self._tensor_names(numbers, names)}
        return replace(
            self.short,
            ops=replace(self.short.ops, **ops),
            tensors=replace(self.short.tensors, **tensors),
            inputs=inputs,
            outputs=outputs,
            facts=self._facts(),
        )

    def _rows(self) -> Iterator[_Row]:
        """Every op in order: those of later blocks moved on, the pattern's copies after the pattern."""
        of_op, phase = self.blocks.of_op, self.short.ops.phase.tolist()
        ends = {op for op in self.blocks.pattern if op + 1 == len(of_op) or of_op[op + 1] != PATTERN}
        starts = {op for op in self.blocks.pattern if not op or of_op[op - 1] != PATTERN}
        run: list[int] = []
        for op, block in enumerate(of_op):
            backward = phase[op] == 1
            if op in starts and backward:
                yield from self._copies(self._run(op), descending=True)
            yield _Row(op, self.more if block is not None and block > PATTERN else 0)
            run = [*run, op] if block == PATTERN else []
            if op in ends and not backward:
                yield from self._copies(run, descending=False)

    def _run(self, start: int) -> list[int]:
        end = start
        while end < len(self.blocks.of_op) and self.blocks.of_op[end] == PATTERN:
            end += 1
        return list(range(start, end))

    def _copies(self, run: list[int], descending: bool) -> Iterator[_Row]:
        order = range(self.more, 0, -1) if descending else range(1, self.more + 1)
        for by in order:
            yield from (_Row(op, by) for op in run)

    def _place(self, tensor: int, by: int) -> Place:
        chain = self.blocks.chains.get(tensor)
        return (tensor, None) if chain is None else (chain[0], chain[1] + by)

    def _original(self, place: Place) -> int:
        return place[0]

    def _numbers(self) -> dict[Place, int]:
        """Every tensor's number: first what the step is given, each block's after the one before, then as
        made.
        """
        places = list(self._persistent_places())
        for row in self.rows:
            places += (self._place(tensor, row.by) for tensor in self.short.outputs[row.op].tolist())
        return {place: number for number, place in enumerate(dict.fromkeys(places))}

    def _persistent_places(self) -> Iterator[Place]:
        run: list[int] = []
        for tensor in np.nonzero(self.short.persistent)[0].tolist():
            block = self.blocks.of(self.short.tensors.name[tensor])
            if run and block != PATTERN:
                yield from (self._place(held, by) for by in range(1, self.more + 1) for held in run)
            run = [*run, tensor] if block == PATTERN else []
            yield self._place(tensor, self.more if block is not None and block > PATTERN else 0)

    def _modules(self) -> tuple[str, ...]:
        return tuple(self.blocks.renamed(self.short.ops.module[row.op], row.by) for row in self.rows)

    def _tensor_names(self, numbers: Mapping[Place, int], names: tuple[str, ...]) -> tuple[str, ...]:
        """A given tensor is called as its module, a made one as the op that makes it."""
        found = [""] * len(numbers)
        for place, number in numbers.items():
            found[number] = self._given_name(place)
        for row, name in zip(self.rows, names, strict=True):
            own = self.short.ops.name[row.op]
            for tensor in self.short.outputs[row.op].tolist():
                called = self.short.tensors.name[tensor]
                if called == own or called.startswith(f"{own}:"):
                    found[numbers[self._place(tensor, row.by)]] = name + called.removeprefix(own)
        return tuple(found)

    def _given_name(self, place: Place) -> str:
        name, block = self.short.tensors.name[place[0]], self.blocks.of(self.short.tensors.name[place[0]])
        if place[1] is not None:
            return self.blocks.renamed(name, place[1])
        return self.blocks.renamed(name, self.more) if block is not None and block > PATTERN else name

    def _facts(self) -> dict[str, Any]:
        facts, step = dict(self.short.facts), self.short
        own = np.nonzero(step.persistent & (step.tensors.kind == 0))[0].tolist()
        held = [tensor for tensor in own if self.blocks.of(step.tensors.name[tensor]) == PATTERN]
        facts["parameters"] += self.more * sum(map(self._weights_in, held))
        if "trained_parameters" in facts:
            written = {tensor for row in step.outputs.lists() for tensor in row}
            facts["trained_parameters"] += self.more * sum(map(self._weights_in, written.intersection(held)))
        facts["model_flops"] += self.more * self._model_flops()
        return facts

    def _weights_in(self, parameter: int) -> int:
        tensors = self.short.tensors
        return self.weights.get(tensors.name[parameter], math.prod(tensors.shape[parameter]))

    def _model_flops(self) -> float:
        """A block's FLOPs, less those of fused attention that computes its scores again: a fixed share of its
        backward pass.
        """
        flops, targets = self.short.ops.flops, self.short.ops.target
        backward = np.array(["_scaled_dot_product" in name and "backward" in name for name in targets])
        again = self.short.flops - float(self.short.facts["model_flops"])
        share = again / float(flops[backward].sum()) if again else 0.0
        pattern = self.blocks.pattern
        return float(flops[pattern].sum()) - share * float(flops[pattern][backward[pattern]].sum())


def _take_rows(table: Any, rows: list[int]) -> dict[str, Any]:
    """Every column of ``table`` at these rows."""
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    return {
        name: column[rows] if isinstance(column, np.ndarray) else tuple(column[row] for row in rows)
        for name, column in columns.items()
    }


def _count_anew(names: list[str]) -> tuple[str, ...]:
    """Names of ops counted anew, as tracing counts them: ``add``, ``add_1`` ... (``sum``, a word of Python,
    from ``sum_1``).
    """
    parts = [_base_and_number(name) for name in names]
    following = dict(reversed(parts))
    found = []
    for base, _ in parts:
        number = following[base]
        found.append(f"{base}_{number}" if number else base)
        following[base] += 1
    return tuple(found)


def _base_and_number(name: str) -> tuple[str, int]:
    base, _, number = name.rpartition("_")
    return (base, int(number)) if base and number.isdecimal() else (name, 0)
