"""The free ranges of an address space, ordered by address: found, cut and joined again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Holes:
    """Hole ``i`` is ``[starts[i], starts[i] + sizes[i])``; holes never touch one another."""

    def __init__(self, size: int) -> None:
        self.starts, self.sizes = ([0], [size]) if size else ([], [])
        self.free = size

    @property
    def largest(self) -> int:
        return max(self.sizes, default=0)

    def lowest(self, size: int, above: int = 0) -> int | None:
        """The lowest address at or ``above`` which ``size`` bytes are free."""
        if above:
            return self._lowest_above(size, above)
        for place, length in enumerate(self.sizes):
            if length >= size:
                return self.starts[place]
        return None

    def _lowest_above(self, size: int, above: int) -> int | None:
        for place in range(max(0, bisect_right(self.starts, above) - 1), len(self.starts)):
            address = max(self.starts[place], above)
            if self.starts[place] + self.sizes[place] - address >= size:
                return address
        return None

    def highest(self, size: int) -> int | None:
        """The highest address at which ``size`` bytes are free."""
        for place in reversed(range(len(self.sizes))):
            if self.sizes[place] >= size:
                return self.starts[place] + self.sizes[place] - size
        return None

    def tightest(self, size: int) -> int | None:
        """The start of the smallest hole of at least ``size`` bytes, the lowest of equal ones."""
        place = min(
            (i for i, length in enumerate(self.sizes) if length >= size),
            key=self.sizes.__getitem__,
            default=None,
        )
        return None if place is None else self.starts[place]

    def holds(self, start: int, size: int) -> bool:
        """Whether ``[start, start + size)`` is free."""
        place = bisect_right(self.starts, start) - 1
        return place >= 0 and start + size <= self.starts[place] + self.sizes[place]

    def cut(self, start: int, size: int) -> None:
        """Take ``[start, start + size)`` out of the hole that holds it."""
        place = bisect_right(self.starts, start) - 1
        before = start - self.starts[place]
        after = self.sizes[place] - before - size
        self.free -= size
        if before and after:
            self.sizes[place] = before
            self.starts.insert(place + 1, start + size)
            self.sizes.insert(place + 1, after)
        elif before:
            self.sizes[place] = before
        elif after:
            self.starts[place], self.sizes[place] = start + size, after
        else:
            del self.starts[place], self.sizes[place]

    def join(self, start: int, size: int) -> None:
        """Give ``[start, start + size)`` back; it becomes one hole with its free neighbors."""
        self.free += size
        place = end = bisect_left(self.starts, start)
        if place < len(self.starts) and self.starts[place] == start + size:
            size += self.sizes[place]
            end += 1
        if place and self.starts[place - 1] + self.sizes[place - 1] == start:
            place -= 1
            start, size = self.starts[place], size + self.sizes[place]
        self.starts[place:end], self.sizes[place:end] = [start], [size]
