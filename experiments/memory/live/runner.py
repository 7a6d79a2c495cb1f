"""Runs the captured step op by op with a plan's moves in between.

The graph's nodes keep their order; between them stand the moves, and after each the values that nothing needs any
more are let go, reruns counted. A rerun evaluates the listed nodes once more in a scope of its own; the new
storage then takes the place of the dropped one in every view of it that is still held.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from experiments.memory.interface import plan as moves
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.rerun import Lineage
from experiments.memory.live.copies import CudaCopies, HostCopies, Ledger
from experiments.memory.live.schedule import made_by, schedule
from experiments.profiling.capture import Traced

Scope = dict[str, Any]


class StepRunner:
    """Runs steps of ``traced`` under ``plan`` on the inputs given, which it updates in place.

    ``ledger.peak`` is the most bytes that were on the device at once over all steps run, inputs included.
    """

    def __init__(self, traced: Traced, plan: MemoryPlan) -> None:
        self.traced = traced
        self.schedule = schedule(traced, plan)
        self.lineage = Lineage(traced.step)
        self.nodes: list[fx.Node] = list(traced.graph_module.graph.nodes)
        self.by_name = {node.name: node for node in self.nodes}
        self.op_of = {name: op for op, name in enumerate(traced.step.ops.name)}
        self.touched = [row.tolist() for row in traced.step.touched]
        self.views_of: dict[int, list[str]] = defaultdict(list)
        for name, tensors in traced.tensor_of.items():
            for tensor in tensors:
                self.views_of[tensor].append(name)
        self.ledger = Ledger()
        cuda = traced.device.startswith("cuda")
        self.copies: HostCopies = CudaCopies(self.ledger) if cuda else HostCopies(self.ledger)
        self.scope: Scope = {}
        self.until: dict[int, list[int]] = defaultdict(list)
        self.coming: set[int] = set()
        self.generators: dict[int, Tensor] = {}
        self.carry: dict[str, Callable[[Any], None]] = {
            "offload": self._offload,
            "prefetch": self._prefetch,
            "wait": self._wait,
            "drop": self._drop,
            "recompute": self._recompute,
        }

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """One step; returns the loss (or the output)."""
        rest = iter(inputs)
        out: Any = None
        for node in self.nodes:
            if node.op == "placeholder":
                self._hold(self.scope, node, next(rest))
            elif node.op == "get_attr":
                self._hold(self.scope, node, getattr(self.traced.graph_module, str(node.target)))
            elif node.op == "output":
                self._before(len(self.op_of))
                out = fx.node.map_arg(node.args[0], lambda arg: self.scope[arg.name])
            else:
                self._run(node)
        self.scope.clear()
        self.copies.finish()
        loss: Tensor = next(_parts(out))
        return loss

    def _run(self, node: fx.Node) -> None:
        op = self.op_of.get(node.name)
        if op is not None:
            self._before(op)
            for tensor in self.touched[op]:
                self._await(tensor)
            if op in self.schedule.again and self.traced.step.ops.random[op]:
                self.generators[op] = _generator_state(self.traced.device)
        self._hold(self.scope, node, _call(node, lambda arg: self.scope[arg.name]))
        if op is not None:
            for tensor in self.until.pop(op, ()):
                self.copies.release(tensor, self._storage(tensor))
        self._let_go(self.scope, self.schedule.after.get(node.name, ()))

    def _before(self, op: int) -> None:
        for move in self.schedule.before.get(op, ()):
            self.carry[move.action](move)
        self._let_go(self.scope, self.schedule.after_moves.get(op, ()))

    # --- values ---------------------------------------------------------------------------------------------

    def _hold(self, scope: Scope, node: fx.Node, value: Any) -> None:
        scope[node.name] = value
        for part in _parts(value):
            self.ledger.enter(part.untyped_storage())

    def _let_go(self, scope: Scope, names: Sequence[str]) -> None:
        keys = [part.untyped_storage()._cdata for name in names for part in _parts(scope.pop(name, None))]
        self.ledger.sweep(keys)

    def _views(self, scope: Scope, tensor: int) -> Iterator[Tensor]:
        """Every value held in ``scope`` that lies in ``tensor``."""
        for name in self.views_of[tensor]:
            if name in scope:
                ids = self.traced.tensor_of[name]
                yield from (
                    part for part, lies in zip(_parts(scope[name]), ids, strict=False) if lies == tensor
                )

    def _storage(self, tensor: int) -> torch.UntypedStorage:
        return next(self._views(self.scope, tensor)).untyped_storage()

    # --- moves ----------------------------------------------------------------------------------------------

    def _await(self, tensor: int) -> None:
        if tensor in self.coming:
            self.coming.discard(tensor)
            self.copies.need(tensor)

    def _offload(self, move: moves.Offload) -> None:
        self._await(move.tensor)
        storage = self._storage(move.tensor)
        self.copies.offload(move.tensor, storage)
        if move.until >= move.at:
            self.until[move.until].append(move.tensor)
        else:
            self.copies.release(move.tensor, storage)

    def _prefetch(self, move: moves.Prefetch) -> None:
        self.copies.prefetch(move.tensor, self._storage(move.tensor))
        self.coming.add(move.tensor)

    def _wait(self, move: moves.Wait) -> None:
        self.coming.discard(move.tensor)
        self.copies.need(move.tensor)

    def _drop(self, move: moves.Drop) -> None:
        self.copies.release(move.tensor, self._storage(move.tensor))

    def _recompute(self, move: moves.Recompute) -> None:
        made = made_by(move, self.lineage)
        last = {tensor: op for op in move.ops for tensor in self.touched[op]}
        again: Scope = {}
        for op in move.ops:
            self._rerun(op, again, made)
            over = {tensor for tensor, end in last.items() if end <= op and tensor not in move.keep}
            done = [name for name in again if over.issuperset(self.traced.tensor_of[name])]
            self._let_go(again, done)
        for tensor in move.keep:
            fresh = next(self._views(again, tensor)).untyped_storage()
            for view in self._views(self.scope, tensor):
                view.set_(fresh, view.storage_offset(), view.size(), view.stride())

    def _rerun(self, op: int, again: Scope, made: set[int]) -> None:
        """Evaluate ``op`` once more; what it makes goes into ``again``, tuples taken apart."""
        node = self.by_name[self.traced.step.ops.name[op]]
        for tensor in self.touched[op]:
            if tensor not in made:
                self._await(tensor)
        scratch = {t for t in self.lineage.writes[op] if self.lineage.persistent[t]}

        def value(argument: fx.Node) -> Any:
            held = self._value(argument, again, made)
            ids = self.traced.tensor_of.get(argument.name, ())
            return held.clone() if scratch.intersection(ids) else held

        with _generator(self.generators.get(op), self.traced.device):
            result = _call(node, value)
        if isinstance(result, Tensor):
            self._hold(again, node, result)
            return
        for user in node.users:
            if user.target is operator.getitem:
                self._hold(again, user, result[user.args[1]])

    def _value(self, node: fx.Node, again: Scope, made: set[int]) -> Any:
        """A node's value in a rerun: made before in it, as it stands, or a view of what the rerun made."""
        if node.name in again:
            return again[node.name]
        if made.isdisjoint(self.traced.tensor_of.get(node.name, ())):
            return self.scope[node.name]
        again[node.name] = _call(node, lambda argument: self._value(argument, again, made))
        return again[node.name]


def _call(node: fx.Node, value: Callable[[fx.Node], Any]) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
    assert callable(node.target), node
    return node.target(*args, **kwargs)


def _parts(value: Any) -> Iterator[Tensor]:
    """The tensors in a node's value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _parts(part)


def _generator_state(device: str) -> Tensor:
    return torch.cuda.get_rng_state() if device.startswith("cuda") else torch.get_rng_state()


class _generator:
    """Sets the random state that an op ran with first, and puts the present one back; nothing when ``None``."""

    def __init__(self, state: Tensor | None, device: str) -> None:
        self.state, self.device = state, device

    def __enter__(self) -> None:
        if self.state is not None:
            self.present = _generator_state(self.device)
            self._set(self.state)

    def __exit__(self, *_: object) -> None:
        if self.state is not None:
            self._set(self.present)

    def _set(self, state: Tensor) -> None:
        (torch.cuda.set_rng_state if self.device.startswith("cuda") else torch.set_rng_state)(state)
