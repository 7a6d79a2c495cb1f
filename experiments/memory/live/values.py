"""The values that a step's nodes have made, which tensors they lie in, and the bytes of those."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from experiments.memory.live.copies import HostCopies
from experiments.memory.live.cuda_copies import CudaCopies
from experiments.memory.live.ledger import Ledger
from experiments.profiling.capture import Traced

Scope = dict[str, Any]


@dataclass(frozen=True)
class Packed:
    """The encoded ``content`` of a tensor, by words of ``word`` bytes.

    Its ``plain`` bytes belong in ``home``.
    """

    content: Tensor
    home: torch.UntypedStorage
    plain: int
    word: int


class Values:
    """The values of a running step, and where they are resident.

    ``scope`` holds values by node, ``on_host`` names those resident in host memory. ``homes`` are device
    storages of persistent tensors and of those that the host works on, ``packed`` the encoded form of
    those that are compressed.
    """

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.ledger = Ledger()
        self.cuda = traced.device.startswith("cuda")
        self.copies: HostCopies = CudaCopies(self.ledger) if self.cuda else HostCopies(self.ledger)
        self.scope: Scope = {}
        self.on_host: set[str] = set()
        self.homes: dict[int, torch.UntypedStorage] = {}
        self.packed: dict[int, Packed] = {}
        self.views_of: dict[int, list[str]] = defaultdict(list)
        for name, tensors in traced.tensor_of.items():
            for tensor in tensors:
                self.views_of[tensor].append(name)

    def hold(self, scope: Scope, node: fx.Node, value: Any) -> None:
        """``value`` is on the device. On CUDA the allocator counts, and Python has launches to hurry with."""
        scope[node.name] = value
        if self.cuda:
            return
        for part in parts(value):
            self.ledger.enter(part.untyped_storage())

    def let_go(self, scope: Scope, names: Sequence[str]) -> None:
        found = [part for name in names for part in parts(scope.pop(name, None))]
        if self.cuda:
            return
        keys = [part.untyped_storage()._cdata for part in found]
        found.clear()
        self.ledger.sweep(keys)

    def let_die(self, names: Sequence[str]) -> None:
        """Drop values that nothing needs any more.

        With the last that lies in a tensor goes what is kept of it elsewhere.
        """
        if not names:
            return
        keys, gone = [], set(names)
        for tensor in {t for name in names for t in self.traced.tensor_of.get(name, ())}:
            if self._elsewhere(tensor) and not any(
                name in self.scope and name not in gone for name in self.views_of[tensor]
            ):
                keys += self._forget(tensor)
        self.on_host.difference_update(names)
        self.let_go(self.scope, names)
        self.ledger.sweep(keys)

    def clear(self) -> None:
        """The step is over."""
        self.let_die(list(self.scope))

    def _elsewhere(self, tensor: int) -> bool:
        kept = tensor in self.copies.away or tensor in self.homes or tensor in self.packed
        return kept and not self.traced.step.persistent[tensor]

    def _forget(self, tensor: int) -> list[int]:
        """Let go what is kept of ``tensor`` besides its values; the keys of storages that may be gone now."""
        self.copies.forget(tensor)
        packed = self.packed.pop(tensor, None)
        found = [self.homes.pop(tensor, None), None if packed is None else packed.content.untyped_storage()]
        return [storage._cdata for storage in found if storage is not None]

    def storage(self, tensor: int) -> torch.UntypedStorage:
        """Return where the content of ``tensor`` is resident on the device, or would be.

        Its encoded form if it is compressed. What was made on the host gets its place on the device when it
        is asked for.
        """
        if tensor in self.packed:
            return self.packed[tensor].content.untyped_storage()
        if tensor not in self.homes:
            view = next(self.views(self.scope, tensor), None)
            if view is not None:
                return view.untyped_storage()
            nothing = torch.empty(0, dtype=torch.uint8, device=self.traced.device)
            self.homes[tensor] = nothing.untyped_storage()
        return self.homes[tensor]

    def views(self, scope: Scope, tensor: int) -> Iterator[Tensor]:
        """Every value on the device held in ``scope`` that lies in ``tensor``."""
        for name in self.views_of[tensor]:
            if name in scope and name not in self.on_host:
                ids = self.traced.tensor_of[name]
                yield from (
                    part for part, lies in zip(parts(scope[name]), ids, strict=False) if lies == tensor
                )


def call(node: fx.Node, value: Callable[[fx.Node], Any], **changes: Any) -> Any:
    """Return the value of ``node`` with those of its arguments.

    ``changes`` replace keyword arguments that it has.
    """
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
    assert callable(node.target), node
    return node.target(*args, **kwargs | {name: new for name, new in changes.items() if name in kwargs})


def parts(value: Any) -> Iterator[Tensor]:
    """The tensors in a node's value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from parts(part)


def over(part: Tensor, storage: torch.UntypedStorage) -> Tensor:
    """A tensor with the geometry of ``part`` in ``storage``."""
    empty = torch.empty(0, dtype=part.dtype, device=storage.device)
    return empty.set_(storage, part.storage_offset(), part.size(), part.stride())


def map_parts(value: Any, new: Callable[[Tensor, int], Tensor], tensors: Iterator[int]) -> Any:
    """``value`` with each part that lies in one of ``tensors``, which are paired with the parts, replaced."""
    if isinstance(value, Tensor):
        return new(value, next(tensors))
    return (
        type(value)(map_parts(part, new, tensors) for part in value)
        if isinstance(value, tuple | list)
        else value
    )
