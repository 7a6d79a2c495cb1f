"""An allocator whose objects have fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.memory.simulator.pools.allocator import NOWHERE, Allocator


class SizeClassAllocator(Allocator):
    """Objects of fixed sizes, side by side. A tensor takes a free object of its class, the lowest first."""

    def __init__(self, classes: Sequence[tuple[int, int]], serves: Mapping[int, int]) -> None:
        self.serves = serves
        self.bytes = [size for size, _ in classes]
        self.by_size = sorted(range(len(classes)), key=self.bytes.__getitem__)
        self.objects: list[list[int]] = []
        for size, count in classes:
            self.objects.append([self.end + size * i for i in reversed(range(count))])
            self.end += size * count
        self.taken: dict[int, tuple[int, int]] = {}
        self.unused = self.end
        self.slack = 0

    def class_of(self, tensor: int, size: int) -> int | None:
        """The class that serves ``tensor``: as decided, otherwise the smallest that holds it."""
        decided = self.serves.get(tensor)
        if decided is not None:
            return decided if self.bytes[decided] >= size else None
        return next((kind for kind in self.by_size if self.bytes[kind] >= size), None)

    def take(self, tensor: int, size: int) -> int | None:
        if not size:
            return NOWHERE
        kind = self.class_of(tensor, size)
        if kind is None or not self.objects[kind]:
            return None
        address = self.objects[kind].pop()
        self.taken[address] = (kind, size)
        self.unused -= self.bytes[kind]
        self.slack += self.bytes[kind] - size
        self.wasted = max(self.wasted, self.slack)
        return address

    def give(self, address: int) -> None:
        if address != NOWHERE:
            kind, size = self.taken.pop(address)
            self.objects[kind].append(address)
            self.unused += self.bytes[kind]
            self.slack -= self.bytes[kind] - size

    @property
    def free(self) -> int:
        return self.unused

    @property
    def largest(self) -> int:
        return max((self.bytes[kind] for kind, left in enumerate(self.objects) if left), default=0)
