"""A range of pages given out first fit, from either end."""

from __future__ import annotations

from bisect import bisect_left


class PageAllocator:
    """Contiguous pages: the lowest hole that fits from the left, the highest from the right."""

    def __init__(self, pages: int) -> None:
        self.starts, self.lengths = [0], [pages]
        self.total, self.free = pages, pages

    def take(self, pages: int, right: bool) -> int | None:
        """First page of a new range, or ``None`` where no hole holds it."""
        lengths = self.lengths
        places = range(len(lengths) - 1, -1, -1) if right else range(len(lengths))
        for place in places:
            if lengths[place] >= pages:
                return self._cut(place, pages, right)
        return None

    def _cut(self, place: int, pages: int, right: bool) -> int:
        start, left = self.starts[place], self.lengths[place] - pages
        self.free -= pages
        if not left:
            del self.starts[place], self.lengths[place]
            return start
        self.lengths[place] = left
        if right:
            return start + left
        self.starts[place] = start + pages
        return start

    def give(self, start: int, pages: int) -> None:
        """Take back a range."""
        if not pages:
            return
        self.free += pages
        starts, lengths = self.starts, self.lengths
        place = bisect_left(starts, start)
        if place < len(starts) and start + pages == starts[place]:
            starts[place], lengths[place] = start, pages + lengths[place]
        else:
            starts.insert(place, start)
            lengths.insert(place, pages)
        if place and starts[place - 1] + lengths[place - 1] == starts[place]:
            lengths[place - 1] += lengths[place]
            del starts[place], lengths[place]

    @property
    def largest(self) -> int:
        """Pages of the largest hole."""
        return max(self.lengths, default=0)
