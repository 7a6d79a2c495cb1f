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

from experiments.memory.interface.lineage import Lineage
from experiments.memory.interface.plan import PlaceTensor
from experiments.memory.live.values import Values, call, map_parts, over, parts


class HostExecution:
    """Carries ops out in host memory, and takes placed tensors there and back.

    ``placed`` are the device storages of persistent tensors that begin and end a step with a copy off the
    device.
    """

    def __init__(self, values: Values, lineage: Lineage) -> None:
        self.values, self.lineage = values, lineage
        self.traced, self.copies = values.traced, values.copies
        self.placed: dict[int, torch.UntypedStorage] = {}

    def settle_in(self, places: Sequence[PlaceTensor], inputs: Sequence[Tensor]) -> None:
        """Move the tensors of ``places`` to their tiers: once, before the first step."""
        self.find_homes(inputs)
        for place in places:
            storage = self.values.homes[place.tensor]
            self.copies.offload(place.tensor, storage, place.tier)
            if place.copy:
                self.copies.kept.add(place.tensor)
            else:
                self.copies.release(place.tensor, storage)
            self.placed[place.tensor] = storage
        self.copies.finish()
        self.copies.bytes_out = 0

    def find_homes(self, inputs: Sequence[Tensor]) -> None:
        """Persistent tensors are there when no node's value lies in them any more."""
        leaves = [node for node in self.traced.graph_module.graph.nodes if node.op == "placeholder"]
        for node, value in zip(leaves, inputs, strict=True):
            for tensor in self.traced.tensor_of[node.name]:
                if self.lineage.persistent[tensor]:
                    self.values.homes[tensor] = value.untyped_storage()

    def bring_home(self) -> None:
        """Placed tensors return to the device, and their copies off it are let go."""
        for tensor, storage in self.placed.items():
            if tensor in self.copies.kept:
                self.copies.forget(tensor)
            elif tensor in self.copies.away:
                self.copies.prefetch(tensor, storage)
                self.copies.need(tensor)
        self.copies.finish()
        self.copies.close()

    # --- ops on the host ------------------------------------------------------------------------------------

    def run_on_host(self, node: fx.Node, op: int) -> None:
        """Evaluate ``node`` on copies in host memory; device copies of what it writes are void."""
        value = call(node, self._value_on_host, device=torch.device("cpu"))
        self.values.scope[node.name] = value
        self.values.on_host.add(node.name)
        for tensor, part in zip(self.traced.tensor_of[node.name], parts(value), strict=False):
            if tensor not in self.copies.away:
                self.copies.adopt(tensor, part.untyped_storage())
        for tensor in self.lineage.writes[op]:
            self.copies.kept.discard(tensor)
            if tensor in self.values.homes and self.values.homes[tensor].nbytes():
                self.copies.release(tensor, self.values.homes[tensor])

    def pick(self, node: fx.Node) -> None:
        """Take one output of an op that ran on the host."""
        self.values.scope[node.name] = call(node, self._value_on_host)
        self.values.on_host.add(node.name)

    def _value_on_host(self, node: fx.Node) -> Any:
        value = self.values.scope[node.name]
        if node.name in self.values.on_host:
            return value
        return map_parts(value, self._host_part, iter(self.traced.tensor_of[node.name]))

    def _host_part(self, part: Tensor, tensor: int) -> Tensor:
        self.values.homes.setdefault(tensor, part.untyped_storage())
        return over(part, self.copies.content(tensor).untyped_storage())

    def value_on_device(self, node: fx.Node) -> Any:
        """A node's value for an op on the device."""
        value = self.values.scope[node.name]
        if node.name not in self.values.on_host:
            return value
        return map_parts(
            value, lambda part, t: over(part, self.values.homes[t]), iter(self.traced.tensor_of[node.name])
        )
