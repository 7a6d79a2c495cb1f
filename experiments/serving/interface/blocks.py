"""KV memory in blocks: counted references, and blocks of known content that are found again.

A block that nobody holds keeps its content until it is taken for another: blocks are taken from the head of
the free list and given back to its tail (vLLM's allocator; Kwon et al., SOSP 2023, sections 4.2 to 4.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from experiments.workloads.requests import RequestTrace


class BlockPool:
    """``total`` blocks of ``size`` tokens. A key names what a full block holds and all that is before it."""

    def __init__(self, total: int, size: int) -> None:
        self.total, self.size = total, size
        #: Free blocks in order. Of a block that was found again while it was free ``_stale`` entries are left
        #: over, the earliest ones, in all ``_left_over``.
        self._free = deque(range(total))
        self._stale = [0] * total
        self._left_over = 0
        self._references = [0] * total
        #: References beyond the first of each block.
        self._shared = 0
        self._block_of: dict[int, int] = {}
        self._key_of: dict[int, int] = {}
        #: Free blocks whose content is still known.
        self.cached = 0

    @property
    def free(self) -> int:
        return len(self._free) - self._left_over

    @property
    def used(self) -> int:
        return self.total - self.free

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def references(self, block: int) -> int:
        return self._references[block]

    def take(self, count: int) -> list[int]:
        """``count`` blocks from the head of the free list; what they held is forgotten."""
        references = self._references
        pop = self._pop if self._left_over else self._free.popleft
        taken = [pop() for _ in range(count)]
        for block in taken:
            references[block] = 1
        for block in taken if self._key_of else ():
            if block in self._key_of:
                self._forget(block)
        return taken

    def _pop(self) -> int:
        """The first block that is free."""
        while True:
            block = self._free.popleft()
            if not self._stale[block]:
                return block
            self._stale[block] -= 1
            self._left_over -= 1

    def _drop_stale(self) -> None:
        kept = deque[int]()
        while self.free:
            kept.append(self._pop())
        self._free, self._stale, self._left_over = kept, [0] * self.total, 0

    def _forget(self, block: int) -> None:
        del self._block_of[self._key_of.pop(block)]
        self.cached -= 1

    def release(self, blocks: Sequence[int]) -> None:
        """The last block first, so that the beginnings of prompts, which others share, stay longest."""
        references, free, known = self._references, self._free, self._key_of
        if not self._shared and not known:  # nobody else has any of them, and none is found again
            for block in blocks:
                references[block] = 0
            free.extend(reversed(blocks))
            return
        for block in reversed(blocks):
            left = references[block] = references[block] - 1
            if left:
                self._shared -= 1
            else:
                free.append(block)
                if block in known:
                    self.cached += 1

    def register(self, block: int, key: int) -> None:
        """The block holds what ``key`` names; of a key that another block has already, nothing is kept."""
        if key not in self._block_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def find(self, keys: Sequence[int], most: int) -> list[int]:
        """The blocks of the first ``most`` keys, up to the first that is not there."""
        found = []
        for key in keys[:most]:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def share(self, blocks: Sequence[int]) -> None:
        """Hold ``blocks``, which ``find`` found, once more each."""
        for block in blocks:
            if self._references[block] == 0:
                self._stale[block] += 1
                self._left_over += 1
                self.cached -= 1
            else:
                self._shared += 1
            self._references[block] += 1
        if self._left_over > self.total:
            self._drop_stale()


def keys_of(trace: RequestTrace, block: int) -> Sequence[Sequence[int]]:
    """Even keys of the prompts' full blocks, where the trace tells them of blocks of that size."""
    if trace.hashes is None or trace.block != block:
        return [()] * len(trace)
    full = (trace.prompt // block).tolist()
    rows = zip(trace.hashes.lists(), full, strict=True)
    return [tuple(2 * key for key in row[:blocks]) for row, blocks in rows]
