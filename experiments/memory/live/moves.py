"""The moves of a plan between the nodes of a step: copies, waits, drops, codecs and reruns.

A rerun evaluates the listed nodes once more in a scope of its own; the new storage then takes the place of
the dropped one in every view of it that is still held.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from experiments.memory.interface import plan as moves
from experiments.memory.interface.lineage import Lineage
from experiments.memory.live.codec import pack, unpack
from experiments.memory.live.copies import bytes_of
from experiments.memory.live.schedule import made_by
from experiments.memory.live.values import Packed, Scope, Values, call
from experiments.workloads.step import Step


class Moves:
    """``until`` are the tensors that leave when an op has ended, ``coming`` those on their way back."""

    def __init__(self, values: Values, lineage: Lineage) -> None:
        self.values, self.lineage = values, lineage
        self.traced, self.copies, self.ledger = values.traced, values.copies, values.ledger
        self.by_name = {node.name: node for node in self.traced.graph_module.graph.nodes}
        self.touched = [row.tolist() for row in self.traced.step.touched]
        self.made_bytes = _bytes_made(self.traced.step, lineage)
        self.until: dict[int, list[int]] = defaultdict(list)
        self.coming: set[int] = set()
        self.generators: dict[int, Tensor] = {}
        self.carry: dict[str, Callable[[Any], None]] = {
            "offload": self._offload,
            "prefetch": self._prefetch,
            "wait": self._wait,
            "drop": self._drop,
            "compress": self._compress,
            "decompress": self._decompress,
            "recompute": self._recompute,
        }

    def await_touched(self, op: int) -> None:
        """The computation goes on when all that ``op`` reads or writes is there."""
        for tensor in self.touched[op]:
            self.await_(tensor)

    def await_(self, tensor: int) -> None:
        """The computation goes on when ``tensor`` is there, if it is coming."""
        if tensor in self.coming:
            self.coming.discard(tensor)
            self.copies.need(tensor)

    def leave(self, op: int) -> None:
        """Op ``op`` has ended: what it was the last to read leaves."""
        for tensor in self.until.pop(op, ()):
            self.copies.release(tensor, self.values.storage(tensor))

    def _offload(self, move: moves.Offload) -> None:
        self.await_(move.tensor)
        storage = self.values.storage(move.tensor)
        word = self._word(move.tensor) if move.ratio > 1 else 0
        self.copies.offload(move.tensor, storage, move.tier, word)
        if move.until >= move.at:
            self.until[move.until].append(move.tensor)
        else:
            self.copies.release(move.tensor, storage)

    def _prefetch(self, move: moves.Prefetch) -> None:
        self.copies.prefetch(move.tensor, self.values.storage(move.tensor), move.keep)
        self.coming.add(move.tensor)

    def _wait(self, move: moves.WaitForCopy) -> None:
        self.coming.discard(move.tensor)
        self.copies.wait(move.tensor)

    def _drop(self, move: moves.Drop) -> None:
        self.copies.forget(move.tensor)
        self.copies.release(move.tensor, self.values.storage(move.tensor))

    def _word(self, tensor: int) -> int:
        return next(self.values.views(self.values.scope, tensor)).element_size()

    # --- codecs ---------------------------------------------------------------------------------------------

    def _compress(self, move: moves.Compress) -> None:
        """Both forms are on the device until the plain one is released."""
        self.await_(move.tensor)
        storage = self.values.storage(move.tensor)
        word = self._word(move.tensor)
        packed = pack(bytes_of(storage), word)
        self.ledger.enter(packed.untyped_storage())
        self.copies.note_ratio(move.tensor, storage.nbytes(), packed.numel())
        self.values.packed[move.tensor] = Packed(packed, storage, storage.nbytes(), word)
        self.copies.forget(move.tensor)
        self.copies.release(move.tensor, storage)

    def _decompress(self, move: moves.Decompress) -> None:
        self.await_(move.tensor)
        self.copies.forget(move.tensor)
        packed = self.values.packed.pop(move.tensor)
        packed.home.resize_(packed.plain)
        self.ledger.enter(packed.home)
        unpack(packed.content, packed.word, bytes_of(packed.home))
        key = packed.content.untyped_storage()._cdata
        del packed
        self.ledger.sweep([key])

    # --- reruns ---------------------------------------------------------------------------------------------

    def _recompute(self, move: moves.Recompute) -> None:
        made = made_by(move, self.lineage)
        last = {tensor: op for op in move.ops for tensor in self.touched[op]}
        again: Scope = {}
        for op in move.ops:
            self._rerun(op, again, made)
            over = {tensor for tensor, end in last.items() if end <= op and tensor not in move.keep}
            done = [name for name in again if over.issuperset(self.traced.tensor_of[name])]
            self.values.let_go(again, done)
        for tensor in move.keep:
            fresh = next(self.values.views(again, tensor)).untyped_storage()
            for view in self.values.views(self.values.scope, tensor):
                view.set_(fresh, view.storage_offset(), view.size(), view.stride())

    def _rerun(self, op: int, again: Scope, made: set[int]) -> None:
        """Evaluate ``op`` once more; what it makes goes into ``again``, tuples taken apart."""
        node = self.by_name[self.traced.step.ops.name[op]]
        for tensor in self.touched[op]:
            if tensor not in made:
                self.await_(tensor)
        scratch = {t for t in self.lineage.writes[op] if self.lineage.persistent[t]}

        def value(argument: fx.Node) -> Any:
            held = self._value(argument, again, made)
            ids = self.traced.tensor_of.get(argument.name, ())
            return held.clone() if scratch.intersection(ids) else held

        self.copies.make_room(self.made_bytes[op])
        with generator(self.generators.get(op), self.traced.device):
            result = call(node, value)
        self.copies.keep_pace()
        if isinstance(result, Tensor):
            self.values.hold(again, node, result)
            return
        for user in node.users:
            if user.target is operator.getitem:
                self.values.hold(again, user, result[user.args[1]])

    def _value(self, node: fx.Node, again: Scope, made: set[int]) -> Any:
        """A node's value in a rerun: made before in it, as it stands, or a view of what the rerun made."""
        if node.name in again:
            return again[node.name]
        if made.isdisjoint(self.traced.tensor_of.get(node.name, ())):
            return self.values.scope[node.name]
        again[node.name] = call(node, lambda argument: self._value(argument, again, made))
        return again[node.name]


def _bytes_made(step: Step, lineage: Lineage) -> list[int]:
    """For each op the bytes of the tensors that it is the first to write."""
    made = [0] * len(step.ops)
    for tensor, writers in enumerate(lineage.writers):
        if writers and not lineage.persistent[tensor]:
            made[writers[0]] += int(step.tensors.bytes[tensor])
    return made


def generator_state(device: str) -> Tensor:
    return torch.cuda.get_rng_state() if device.startswith("cuda") else torch.get_rng_state()


class generator:
    """Set the random state that an op ran with first, and put the present one back.

    Nothing when ``None``.
    """

    def __init__(self, state: Tensor | None, device: str) -> None:
        self.state, self.device = state, device

    def __enter__(self) -> None:
        if self.state is not None:
            self.present = generator_state(self.device)
            self._set(self.state)

    def __exit__(self, *_: object) -> None:
        if self.state is not None:
            self._set(self.present)

    def _set(self, state: Tensor) -> None:
        (torch.cuda.set_rng_state if self.device.startswith("cuda") else torch.set_rng_state)(state)
