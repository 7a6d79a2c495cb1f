"""From a traced graph to the Step: nodes become ops, storages become tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from experiments.profiling import cost
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
        out = node.meta["val"]
        label = self.labels[node.name]
        known = len(self.allocations)
        inputs = self._distinct(cost.tensors((args, kwargs)))
        produced = self.allocate(
            node.name, cost.tensors(out), "activation" if label.phase == "forward" else "temporary"
        )
        self.tensor_of[node.name] = tuple(produced)
        written = self._distinct(_mutated_arguments(node.target, args, kwargs))
        new = [tensor for tensor in dict.fromkeys(produced) if tensor >= known]
        view = not written and not new
        flops = 0 if view else cost.flops(node.target, args, kwargs, out)
        self.model_flops += flops - cost.recomputed_flops(node.target, args)
        self.rows.append(
            {
                "name": node.name,
                "target": str(node.target),
                "module": label.module,
                "phase": PHASES.index(label.phase),
                "flops": flops,
                "bytes_moved": 0 if view else cost.count_bytes_moved(node.target, args, kwargs, out),
                "dtype": _op_dtype(out, args),
                "view": view,
                "random": _random(node.target, args, kwargs),
                "inputs": inputs,
                "outputs": list(dict.fromkeys([*new, *written])),
            }
        )

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
    return lowering
