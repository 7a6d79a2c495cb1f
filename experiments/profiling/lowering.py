"""From a traced graph to the Step: nodes become ops, storages become tensors."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from experiments.profiling import cost, fused_kernels
from experiments.profiling.program import Leaf
from experiments.profiling.recorder import Label, Recorder
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PERSISTENT_KINDS, PHASES, Ops, Step, Tensors

#: Normalizations that update the running mean and variance they are given without saying so in their schema;
#: the positions of those two and of the flag that asks for it.
HIDDEN_UPDATES = {
    torch.ops.aten.native_batch_norm.default: ((3, 4), 5),
    torch.ops.aten.cudnn_batch_norm.default: ((3, 4), 5),
    torch.ops.aten.miopen_batch_norm.default: ((3, 4), 5),
}

#: Ops that Inductor computes point by point, though torch does not mark them so: copies, constants, random
#: numbers, and what picks its points from its arguments.
POINTWISE = {
    "aten._to_copy",
    "aten._unsafe_index",
    "aten.arange",
    "aten.cat",
    "aten.constant_pad_nd",
    "aten.copy",
    "aten.embedding",
    "aten.empty",
    "aten.flip",
    "aten.full",
    "aten.full_like",
    "aten.gather",
    "aten.index",
    "aten.index_select",
    "aten.repeat",
    "aten.scalar_tensor",
    "aten.select_scatter",
    "aten.slice_scatter",
    "prims.inductor_lookup_seed",
    "prims.inductor_random",
    "prims.iota",
}
#: Ops that make a copy of their first argument and put values into it.
PUTS = {
    "aten._unsafe_index_put",
    "aten._unsafe_masked_index_put_accumulate",
    "aten.index_put",
    "aten.scatter",
    "aten.scatter_add",
}


@dataclass
class _Allocation:
    name: str
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    kind: str


@dataclass
class Lowering:
    """Tables under construction, and which allocations each node's value lies in."""

    step_name: str
    labels: Mapping[str, Label]
    gradients: frozenset[int]
    allocations: list[_Allocation] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=dict)
    tensor_of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    model_flops: float = 0.0
    returned: frozenset[int] = frozenset()

    def allocate(self, name: str, values: Sequence[Tensor], kind: str) -> list[int]:
        """Tensor ids of ``values``, new ones where a storage is seen for the first time."""
        found = []
        for position, value in enumerate(values):
            key = value.untyped_storage()._cdata
            if key not in self.ids:
                self.ids[key] = len(self.allocations)
                shown = f"{name}:{position}" if len(values) > 1 else name
                real = "gradient" if key in self.gradients and kind not in PERSISTENT_KINDS else kind
                size, shape = value.untyped_storage().nbytes(), tuple(value.shape)
                self.allocations.append(_Allocation(shown, size, dtype_name(value.dtype), shape, real))
            found.append(self.ids[key])
        return found

    def bind(self, node: fx.Node, name: str, kind: str) -> None:
        """A graph input or constant."""
        self.tensor_of[node.name] = tuple(self.allocate(name, cost.tensors(node.meta["val"]), kind))

    def call(self, node: fx.Node) -> None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta["val"])
        out = node.meta.get("val")  # an op may return nothing and write its arguments alone
        label = self.labels[node.name]
        known = len(self.allocations)
        inputs = self._distinct(cost.tensors((args, kwargs)))
        produced = self.allocate(
            node.name, cost.tensors(out), "activation" if label.phase == "forward" else "temporary"
        )
        self.tensor_of[node.name] = tuple(produced)
        mutated = _mutated_arguments(node.target, args, kwargs)
        written = self._distinct(mutated)
        new = [tensor for tensor in dict.fromkeys(produced) if tensor >= known]
        view = not written and not new
        result = mutated if out is None else out
        flops = 0 if view else cost.flops(node.target, args, kwargs, out)
        self.model_flops += flops - cost.recomputed_flops(node.target, args)
        self.rows.append(
            {
                "name": node.name,
                "target": str(node.target),
                "module": label.module,
                "phase": PHASES.index(label.phase),
                "flops": flops,
                "bytes_moved": 0 if view else cost.count_bytes_moved(node.target, args, kwargs, result),
                "dtype": _op_dtype(out, args),
                "view": view,
                "random": _random(node.target, args, kwargs),
                "inputs": inputs,
                "outputs": list(dict.fromkeys([*new, *written])),
                "graph": label.graph,
                **({} if label.graph < 0 else self._graph_row(node, (args, kwargs), out, bool(written))),
            }
        )

    def _graph_row(self, node: fx.Node, given: Any, out: Any, writes_argument: bool) -> dict[str, Any]:
        """What fusion asks of an op of a compiled graph; ``extents`` are bytes read, by tensor and place."""
        made = cost.tensors(out)
        read = cost.tensors(given)
        form = fused_kernels.LIBRARY if writes_argument else form_of(node.target, given)
        picked = sum(cost.extent(value) for value in made) if cost.picks(node.target) else None
        extents = {
            (self.ids[value.untyped_storage()._cdata], value.storage_offset(), tuple(value.shape)): (
                cost.extent(value) if picked is None or position else picked
            )
            for position, value in enumerate(read)
        }
        results = made[0].numel() if made else 0
        points = max((value.numel() for value in read), default=0)
        return {
            "form": form,
            "points": points if form in (fused_kernels.ROWS, fused_kernels.COLUMNS) else results,
            "results": results,
            "extents": extents,
            "original": str(node.meta.get("original_aten") or node.target),
        }

    def leave(self, node: fx.Node) -> None:
        """The graph's output: what it returns outlives every op."""
        values = fx.map_arg(node.args, lambda arg: arg.meta["val"])
        self.returned = frozenset(self._distinct(cost.tensors(values)))

    def fuse_kernels(self) -> None:
        """Merge ops of compiled graphs into kernels, and forget tensors that are never in memory then."""
        readers: dict[int, set[int]] = {tensor: {-1} for tensor in self.returned}
        for row in self.rows:
            for tensor in row["inputs"]:
                readers.setdefault(tensor, set()).add(row["graph"])
        found: list[dict[str, Any]] = []
        names: Counter[str] = Counter()
        for graph, rows in itertools.groupby(self.rows, lambda row: row["graph"]):
            if graph < 0:
                found += rows
                continue
            leaving = {tensor for tensor, graphs in readers.items() if graphs - {graph}}
            found += self._fuse_graph(list(self._with_copies(list(rows))), leaving, names)
        self.rows = found
        self._forget_unused()

    def _with_copies(self, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """``rows`` with a copy of its own before each op that puts values into a copy of a tensor.

        A copy is a pointwise op like others: of a constant it is the constant, made in place.
        """
        for row in rows:
            if row["target"].rpartition(".")[0] not in PUTS:
                yield row
                continue
            old, *others = row["inputs"]
            read = {place: size for place, size in row["extents"].items() if place[0] == old}
            put = {place: size for place, size in row["extents"].items() if place[0] != old}
            copy = {"form": fused_kernels.POINTWISE, "points": row["results"], "extents": read, "flops": 0}
            yield {**row, **copy, "inputs": [old]}
            own = {"inputs": [*row["outputs"], *others], "bytes_moved": 2 * sum(put.values())}
            yield {**row, **own, "extents": put}

    def _fuse_graph(
        self, rows: Sequence[dict[str, Any]], leaving: set[int], names: Counter[str]
    ) -> list[dict[str, Any]]:
        """The rows of one compiled graph, kernel by kernel; its views move nothing."""
        ops = [row for row in rows if not row["view"]]
        graph = [
            fused_kernels.GraphOp(
                row["form"], row["points"], row["results"], tuple(row["inputs"]), tuple(row["outputs"])
            )
            for row in ops
        ]
        sizes = {tensor: item.bytes for tensor, item in enumerate(self.allocations)}
        kernels = fused_kernels.fuse(graph, leaving, sizes)
        return [
            ops[kernel.ops[0]] if kernel.library else self._kernel_row(kernel, ops, names)
            for kernel in kernels
        ]

    def _kernel_row(
        self, kernel: fused_kernels.FusedKernel, ops: Sequence[dict[str, Any]], names: Counter[str]
    ) -> dict[str, Any]:
        """The row of a generated kernel, called and targeted as Inductor calls it: by what its ops were."""
        parts = [ops[op] for op in kernel.ops]
        originals = list(dict.fromkeys(part["original"] for part in parts))
        name = "_".join(["fused", *dict.fromkeys(original.split(".")[1] for original in originals)])
        names[name] += 1
        number = names[name] - 1
        places = {place: size for part in parts for place, size in part["extents"].items()}
        read = dict.fromkeys(kernel.reads, 0)
        for (tensor, *_), size in places.items():
            if tensor in read:
                read[tensor] = min(read[tensor] + size, self.allocations[tensor].bytes)
        written = sum(self.allocations[tensor].bytes for tensor in kernel.writes)
        return {
            **parts[-1],
            "name": f"{name}_{number}" if number else name,
            "target": f"fused({', '.join(originals)})",
            "flops": sum(part["flops"] for part in parts),
            "bytes_moved": sum(read.values()) + written,
            "random": any(part["random"] for part in parts),
            "inputs": list(kernel.reads),
            "outputs": list(kernel.writes),
        }

    def _forget_unused(self) -> None:
        """Number the tensors anew, as a capture does: what is given, then what is made, as it is made."""
        given = [t for t, item in enumerate(self.allocations) if item.kind in PERSISTENT_KINDS]
        made = [tensor for row in self.rows for tensor in row["outputs"]]
        number = {tensor: position for position, tensor in enumerate(dict.fromkeys([*given, *made]))}
        self.allocations = [self.allocations[tensor] for tensor in number]
        for row in self.rows:
            for way in ("inputs", "outputs"):
                row[way] = [number[tensor] for tensor in row[way]]
        self.tensor_of = {
            name: tuple(number[tensor] for tensor in tensors)
            for name, tensors in self.tensor_of.items()
            if all(tensor in number for tensor in tensors)
        }

    def pick(self, node: fx.Node) -> None:
        """One output of a multi-output op. Tracing leaves the ones that nobody reads without a value."""
        producer, index = node.args
        assert isinstance(producer, fx.Node) and isinstance(index, int)
        value = node.meta.setdefault("val", producer.meta["val"][index])
        self.tensor_of[node.name] = tuple(self._distinct(cost.tensors(value)))

    def _distinct(self, values: Sequence[Tensor]) -> list[int]:
        return list(dict.fromkeys(self.ids[value.untyped_storage()._cdata] for value in values))

    def step(self, facts: Mapping[str, Any]) -> Step:
        return Step(
            self.step_name,
            self._ops(),
            self._tensors(),
            Ragged.of(row["inputs"] for row in self.rows),
            Ragged.of(row["outputs"] for row in self.rows),
            facts=facts,
        )

    def _column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def _ops(self) -> Ops:
        count = len(self.rows)
        return Ops(
            name=tuple(self._column("name")),
            target=tuple(self._column("target")),
            module=tuple(self._column("module")),
            phase=np.array(self._column("phase"), np.int8),
            seconds=np.full(count, np.nan),
            flops=np.array(self._column("flops"), np.float64),
            bytes_moved=np.array(self._column("bytes_moved"), np.float64),
            workspace=np.zeros(count, np.int64),
            dtype=tuple(self._column("dtype")),
            view=np.array(self._column("view"), np.bool_),
            random=np.array(self._column("random"), np.bool_),
        )

    def _tensors(self) -> Tensors:
        made = self.allocations
        return Tensors(
            name=tuple(item.name for item in made),
            bytes=np.array([item.bytes for item in made], np.int64),
            dtype=tuple(item.dtype for item in made),
            shape=tuple(item.shape for item in made),
            kind=np.array([KINDS.index(item.kind) for item in made], np.int8),
            sparsity=np.full(len(made), np.nan),
        )


def form_of(target: Any, given: Any) -> str:
    """What Inductor makes of an op on ``given`` arguments.

    Loops over points or sums of them, or a call of a library's routine.
    """
    tags = getattr(target, "tags", ())
    if torch.Tag.pointwise in tags or str(getattr(target, "overloadpacket", "")) in POINTWISE:
        return fused_kernels.POINTWISE
    if torch.Tag.reduction not in tags:
        return fused_kernels.LIBRARY
    return fused_kernels.ROWS if _reduces_last(target, *given) else fused_kernels.COLUMNS


def _reduces_last(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the dimensions that a reduction sums over are the last ones, or all."""
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    dims, rank = given.get("dim"), cost.tensors(args)[0].ndim
    if dims is None or dims == []:
        return True
    places = {dim % max(rank, 1) for dim in (dims if isinstance(dims, list | tuple) else [dims])}
    return places == set(range(rank - len(places), rank))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _op_dtype(out: Any, args: Any) -> str:
    values = cost.tensors(out) or cost.tensors(args)
    return dtype_name(values[0].dtype) if values else ""


def _random(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Draws from a generator; fused attention is tagged so, but draws nothing at dropout 0."""
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    for position, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = (
                args[position] if position < len(args) else kwargs.get("dropout_p", argument.default_value)
            )
            return bool(given)
    return True


def _mutated_arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The arguments that an op writes to: those its schema marks, and hidden running statistics."""
    found: list[Any] = []
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[position] if position < len(args) else kwargs.get(argument.name))
    if target in HIDDEN_UPDATES:
        places, flag = HIDDEN_UPDATES[target]
        found += [args[place] for place in places if args[flag]]
    return cost.tensors(found)


def lower(
    name: str,
    graph: fx.Graph,
    leaves: Sequence[Leaf],
    recorder: Recorder,
    show_life: Callable[[], None] = lambda: None,
) -> Lowering:
    """Walk ``graph``; its placeholders are ``leaves`` in order. ``show_life`` is called before each node."""
    gradients = frozenset(storage._cdata for storage in recorder.gradient_storages)
    lowering = Lowering(name, recorder.labels, gradients)
    rest = iter(leaves)
    for node in graph.nodes:
        show_life()
        if node.op == "placeholder":
            leaf = next(rest)
            lowering.bind(node, leaf.name, leaf.kind)
        elif node.op == "get_attr":
            lowering.bind(node, node.name, "buffer")
        elif node.op == "call_function" and node.target is operator.getitem:
            lowering.pick(node)
        elif node.op == "call_function":
            lowering.call(node)
        elif node.op == "output":
            lowering.leave(node)
    return lowering
