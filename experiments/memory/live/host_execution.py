"""Persistent tensors that belong off the device, and ops that run on the host's processor.

An op on the host reads and writes the copies in host memory in place; what it makes is resident there. A
node's value is turned into one on the other side when it is used there: the same geometry over the tensor's
storage on that side. Such ops run in the graph's order on the thread that feeds the device: concurrent with
what the device was given before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from experiments.memory.interface import plan as moves
from experiments.memory.live.moves import Moves
from experiments.memory.live.values import call, map_parts, over, parts


class HostExecution(Moves):
    """``placed`` are the device storages of persistent tensors that begin and end a step off the device."""

    placed: dict[int, torch.UntypedStorage]

    def settle_in(self, places: Sequence[moves.PlaceTensor], inputs: Sequence[Tensor]) -> None:
        """Move the tensors of ``places`` to their tiers: once, before the first step."""
        self.find_homes(inputs)
        self.placed = {}
        for place in places:
            storage = self.homes[place.tensor]
            self.copies.offload(place.tensor, storage, place.tier)
            self.copies.release(place.tensor, storage)
            self.placed[place.tensor] = storage
        self.copies.finish()
        self.copies.bytes_out = 0

    def find_homes(self, inputs: Sequence[Tensor]) -> None:
        """Persistent tensors are there when no node's value lies in them any more."""
        leaves = [node for node in self.by_name.values() if node.op == "placeholder"]
        for node, value in zip(leaves, inputs, strict=True):
            for tensor in self.traced.tensor_of[node.name]:
                if self.lineage.persistent[tensor]:
                    self.homes[tensor] = value.untyped_storage()

    def bring_home(self) -> None:
        """Placed tensors return to the device, and their copies off it are let go."""
        for tensor, storage in self.placed.items():
            if tensor in self.copies.away:
                self.copies.prefetch(tensor, storage)
                self.copies.need(tensor)
        self.copies.finish()
        self.copies.close()

    # --- ops on the host ------------------------------------------------------------------------------------

    def run_on_host(self, node: fx.Node, op: int) -> None:
        """Evaluate ``node`` on copies in host memory; device copies of what it writes are void."""
        for tensor in self.touched[op]:
            self.await_(tensor)
        value = call(node, self._value_on_host, device=torch.device("cpu"))
        self.scope[node.name] = value
        self.on_host.add(node.name)
        for tensor, part in zip(self.traced.tensor_of[node.name], parts(value), strict=False):
            if tensor not in self.copies.away:
                self.copies.adopt(tensor, part.untyped_storage())
        for tensor in self.lineage.writes[op]:
            self.copies.kept.discard(tensor)
            if tensor in self.homes and self.homes[tensor].nbytes():
                self.copies.release(tensor, self.homes[tensor])

    def _value_on_host(self, node: fx.Node) -> Any:
        value = self.scope[node.name]
        if node.name in self.on_host:
            return value
        return map_parts(value, self._host_part, iter(self.traced.tensor_of[node.name]))

    def _host_part(self, part: Tensor, tensor: int) -> Tensor:
        self.homes.setdefault(tensor, part.untyped_storage())
        return over(part, self.copies.content(tensor).untyped_storage())

    def value_on_device(self, node: fx.Node) -> Any:
        """A node's value for an op on the device."""
        value = self.scope[node.name]
        if node.name not in self.on_host:
            return value
        return map_parts(
            value, lambda part, t: over(part, self.homes[t]), iter(self.traced.tensor_of[node.name])
        )

    def storage(self, tensor: int) -> torch.UntypedStorage:
        """What was made on the host gets its place on the device when it is asked for."""
        known = tensor in self.homes or tensor in self.packed
        if not known and next(self.views(self.scope, tensor), None) is None:
            nothing = torch.empty(0, dtype=torch.uint8, device=self.traced.device)
            self.homes[tensor] = nothing.untyped_storage()
        return super().storage(tensor)
