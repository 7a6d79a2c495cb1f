"""Shardings of a few tensors spread over the graph to a fixed point: the propagation of GSPMD.

Source: Xu et al., "GSPMD: General and Scalable Parallelization for ML Computation Graphs", 2021, section 3.5;
priorities as in XLA's pass. An operator's loops carry shardings between its operands and its result. Level 0
goes through light operators only and merges nothing; later levels go through all and merge shardings that are
compatible; the last also sends the sharding of a broadcast operand forward. A sharding gives way only to a
more specific one that contains it, so that sweeps come to an end. An axis that does not divide a dimension is
not given to it (there it would be padded).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.parallel.planning.meshes.layouts import WHOLE, Layout, count_parts, loop_at
from experiments.parallel.planning.meshes.mesh import Mesh
from experiments.workloads.einsum import Operand, Operator

LEVELS = range(4)
#: Operators whose results are in the order of experts though their rows are still those of the batch:
#: annotated so.
ROUTING = ("choice", "dispatch")
#: What annotations call tensors that nobody makes.
CALLED = {"input": "inputs", "parameter": "weights"}
#: Tensors are named by who makes them: the operator's number, or the parameter's or input's.
Tensor = tuple[str, int]


def tensor_of(operand: Operand, operator: int, place: int) -> Tensor:
    """Return an operand's tensor; a model's input is one for each place that reads it."""
    if operand.source >= 0:
        return "result", operand.source
    return ("parameter", operand.parameter) if operand.parameter >= 0 else ("input", operator * 1000 + place)


@dataclass
class Propagation:
    """The spread of annotated layouts over a graph's tensors.

    - ``found``: the layout of every tensor that has one.
    - ``fixed``: those that are annotated and stay as they are.
    """

    operators: Sequence[Operator]
    mesh: Mesh
    found: dict[Tensor, Layout]
    fixed: frozenset[Tensor] = frozenset()
    sweeps: int = 0
    _sizes: dict[Tensor, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, operator in enumerate(self.operators):
            self._sizes["result", number] = tuple(operator.size[name] for name in operator.output)
        for number, operator in enumerate(self.operators):
            for place, operand in enumerate(operator.operands):
                sizes = tuple(operator.size.get(name, 1) for name in operand.dims)
                self._sizes.setdefault(tensor_of(operand, number, place), sizes)

    def run(self) -> Propagation:
        """Spread layouts to the fixed point of every level, one after the other."""
        for level in LEVELS:
            while self._sweep(level):
                self.sweeps += 1
        return self

    def layout(self, tensor: Tensor) -> Layout:
        return self.found.get(tensor, (WHOLE,) * len(self.mesh.sizes))

    def _sweep(self, level: int) -> bool:
        """Forward in the order of execution, then backward; whether anything became more specific."""
        before = dict(self.found)
        for number in range(len(self.operators)):
            self._forward(number, level)
        for number in reversed(range(len(self.operators))):
            self._backward(number, level)
        return self.found != before

    def _forward(self, number: int, level: int) -> None:
        operator = self.operators[number]
        if level == 0 and not operator.light:
            return
        loops = self._loops(operator.output, list(self._sharded_operands(number, level)), level)
        self._offer(("result", number), operator, operator.output, loops)

    def _sharded_operands(self, number: int, level: int) -> Iterator[tuple[Operand, Layout]]:
        """Operands with a sharding, data before weights, of them the most specific; broadcast ones at the
        last level only.
        """
        operator = self.operators[number]
        known = [
            (operand, self.found[tensor])
            for place, operand in enumerate(operator.operands)
            if (tensor := tensor_of(operand, number, place)) in self.found
            and (level == LEVELS[-1] or not _broadcast(operator, operand))
        ]
        yield from sorted(known, key=lambda k: (k[0].parameter >= 0, -count_parts(k[1], self.mesh.sizes)))

    def _loops(self, names: Sequence[str], read: Sequence[tuple[Operand, Layout]], level: int) -> list[str]:
        """Which of ``names`` each axis divides by the operands; at level 0 by the most specific one alone."""
        loops = [""] * len(self.mesh.sizes)
        for operand, layout in read[:1] if level == 0 else read:
            for axis, entry in enumerate(layout):
                name = loop_at(operand.dims, entry)
                if name in names and not loops[axis]:
                    loops[axis] = name
        return loops

    def _backward(self, number: int, level: int) -> None:
        """From the result to the operands: each axis that divides a loop of both; weights know their sums
        from data.
        """
        operator = self.operators[number]
        if level == 0 and not operator.light:
            return
        layout = self.found.get(("result", number))
        loops = [loop_at(operator.output, entry) for entry in layout] if layout else []
        if level > 0:
            read = self._loops(operator.divisible, list(self._sharded_operands(number, level)), level)
            loops = [a or b for a, b in zip(loops or read, read, strict=True)]
        for place, operand in enumerate(operator.operands):
            self._offer(tensor_of(operand, number, place), operator, operand.dims, loops)

    def _offer(self, tensor: Tensor, operator: Operator, dims: Sequence[str], loops: Sequence[str]) -> None:
        """Give a tensor the sharding that ``loops`` mean for it, where that is more specific and
        compatible.
        """
        if tensor in self.fixed or not any(loops):
            return
        now, wanted = self.layout(tensor), list(self.layout(tensor))
        for axis, name in enumerate(loops):
            if name and name in dims and wanted[axis] == WHOLE and name in operator.divisible:
                wanted[axis] = dims.index(name)
                if not self.divides(tensor, tuple(wanted)):
                    wanted[axis] = WHOLE
        if tuple(wanted) != now:
            self.found[tensor] = tuple(wanted)

    def divides(self, tensor: Tensor, layout: Layout) -> bool:
        sizes = self._sizes[tensor]
        return all(
            size % count_parts(tuple(e if e == place else WHOLE for e in layout), self.mesh.sizes) == 0
            for place, size in enumerate(sizes)
            if place in layout
        )


def _broadcast(operator: Operator, operand: Operand) -> bool:
    """A light operator spreads it over dimensions that it lacks."""
    return operator.light and any(name not in operand.dims for name in operator.output)


def annotate(
    operators: Sequence[Operator], mesh: Mesh, rules: Mapping[str, Mapping[str, str]], open_dimensions: bool
) -> Propagation:
    """Return the annotated layouts of inputs, weights and results, with nothing spread yet.

    From axes (a letter each) by dimension.

    ``open_dimensions``: what is not named of an annotated tensor may be divided too.
    """
    state = Propagation(operators, mesh, {})
    for number, operator in enumerate(operators):
        named = [
            (tensor, operand.dims, rules.get(CALLED[tensor[0]], {}))
            for place, operand in enumerate(operator.operands)
            if (tensor := tensor_of(operand, number, place))[0] != "result"
        ]
        results = rules.get("results", {})
        if operator.kind in ROUTING and "experts" in results:
            results = {"capacity": rules.get("inputs", {}).get("batch", "")}
        named.append((("result", number), operator.output, results))
        for tensor, dims, axes in named:
            layout = _layout(operator, dims, axes, mesh)
            if tensor not in state.found and max(layout) >= 0 and state.divides(tensor, layout):
                state.found[tensor] = layout
    fixed = frozenset() if open_dimensions else frozenset(state.found)
    return replace(state, fixed=fixed)


def _layout(operator: Operator, dims: Sequence[str], rules: Mapping[str, str], mesh: Mesh) -> Layout:
    gate = "batch" in operator.size  # the experts' scores of each row are not the experts
    axes = {
        axis: place
        for place, name in enumerate(dims)
        for axis in rules.get(name, "")
        if name in operator.divisible and not (gate and name == "experts")
    }
    return tuple(axes.get(axis, WHOLE) for axis in mesh.names)
